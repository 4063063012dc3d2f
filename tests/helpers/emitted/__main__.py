"""python -m emitted: are all sampled kernels what they were? Run it with PYTHONPATH=tests/helpers.

python -m emitted                    compare with the recorded list; exit code 1 where it is not
python -m emitted --record           write the list anew, after a change of text on purpose
python -m emitted --write FOLDER     write every text there, to compare two checkouts by diff -r
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from emitted.record import RECORDED, block_line, changed, recorded
from emitted.samples import blocks


def main(arguments: Sequence[str]) -> int:
    """Compares, records or writes; the exit code."""
    parser = argparse.ArgumentParser(prog="emitted", description=main.__doc__)
    parser.add_argument("--record", action="store_true", help="write the list anew")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write every text there")
    parser.add_argument("--only", default="", help="blocks whose name starts so")
    options = parser.parse_args(arguments)
    chosen = [block for block in blocks() if block.name.startswith(options.only)]
    if options.write:
        for block in chosen:
            folder = options.write / block.name.replace(" ", "_")
            folder.mkdir(parents=True, exist_ok=True)
            for index, (_, source) in enumerate(block.kernels()):
                (folder / f"{index:03}.cu").write_text(f"{source.text}// {source.plan}\n")
        return 0
    if options.record:
        known = recorded() if options.only else {}
        known |= {block.name: block_line(block) for block in chosen}
        RECORDED.write_text("".join(f"{line}\n" for line in known.values()))
        return 0
    lines = changed(chosen, recorded())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{len(lines)} of {len(chosen)} blocks have changed\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
