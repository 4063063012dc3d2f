"""python -m ptxtune and the console script: Ctrl-C counts from the first import on."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command; never returns."""
    try:
        from ptxtune.cli import main as run  # noqa: PLC0415  # an import that Ctrl-C may end
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
