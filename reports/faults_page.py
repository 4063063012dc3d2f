"""Fills docs/faults.md with numbers of committed results: python -m reports.faults_page

Between `<!-- written: NAME -->` and `<!-- end -->` the page holds what a function here says of a
log or a JSON document under reports/results; the rest of the page is written by hand.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxgen.errors import PtxtuneError

PAGE = Path("docs/faults.md")
RESULTS = Path("reports/results")
WIDTH = 110

_PART = re.compile(r"(<!-- written: (\S+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def filled(page: str, results: Path) -> str:
    """The page with all its written parts anew.

    Args:
        page: its text.
        results: the folder reports/results.

    Raises:
        PtxtuneError: a part that nobody writes, or a result that does not say what a part tells.
    """

    def write(found: re.Match[str]) -> str:
        head, name, end = found.groups()
        if name not in PARTS:
            raise PtxtuneError(
                f"docs/faults.md has a written part {name!r}, which reports/faults_page.py does "
                f"not know; it writes {', '.join(PARTS)}."
            )
        return f"{head}{PARTS[name](results)}\n{end}"

    return _PART.sub(write, page)


def soak_text(log: Path) -> str:
    """What a log of ptxtune selfcheck --soak says, in a sentence or two."""
    text = log.read_text(encoding="utf-8")
    total, seconds, lanes, runs, workers = _numbers(
        log, text, r"(\d+) faults in (\d+) s: (\d+) lanes, (\d+) runs of the tuner, (\d+) workers"
    )
    injected = {
        name: int(count) for name, count in re.findall(r"^(\S.*?)  +(\d+)\b", text, re.MULTILINE)
    }
    shown = [
        f"{injected[name]} {words}" for name, words in SOAK_FAULTS.items() if injected.get(name)
    ]
    audit = re.findall(rf"^({'|'.join(AUDIT)}) +(\d+)", text, re.MULTILINE)
    if len(audit) != len(AUDIT):
        raise PtxtuneError(f"{log} has {len(audit)} of the audit's {len(AUDIT)} counts.")
    wrong = [f"{name} {count}" for name, count in audit if count != "0"]
    ended = re.search(r"its limit of (\d+) s was reached", text)
    limit = f" The limit of {ended[1]} s ended it, so its exit code was 1." if ended else ""
    return (
        f"{total:,} faults in {seconds} s, of them {', '.join(shown[:-1])} and {shown[-1]}; "
        f"{lanes} lanes, {runs} runs of the tuner with {workers} workers; "
        f"{', '.join(wrong) if wrong else 'every count of the audit 0'}.{limit}"
    )


def selfcheck_text(log: Path) -> str:
    """What a log of ptxtune selfcheck says."""
    text = log.read_text(encoding="utf-8")
    mean, cases = _words(log, text, r"regret against exhaustive, mean +(\S+)% .*?(\d+) cases")
    (worst,) = _words(log, text, r"regret against exhaustive, worst +(\S+)%")
    flips, pairs = _words(log, text, r"winner flips +(\S+)% .*?of (\d+) pairs of runs")
    (costly,) = _words(log, text, r"costly winner flips +(\S+)%")
    transfer, where = _words(log, text, r"nearest bucket's winner, worst +(\S+)% +- +(\S.*)")
    minutes, seconds = _words(log, text, r"real\s+(\d+)m(\S+)s")
    return (
        f"Regret {mean} % on average and {worst} % at worst over {cases} cases; the winner changed "
        f"in {flips} % of {pairs} pairs of runs, and in {costly} % of them at a cost above 2 %. "
        f"Serving {where.partition(' ')[2]} with that bucket's winner would have cost {transfer} "
        f"%. It took {60 * int(minutes) + float(seconds):.0f} s."
    )


def tune_text(log: Path, index: Path) -> str:
    """What a log of ptxtune tune says, and the index of its folder of the time that it took."""
    text = log.read_text(encoding="utf-8")
    device, searches = _words(log, text, r"tuning on (.+), (\d+) searches")
    row = rf"\| `{re.escape(log.name)}` \|.*?: (\d+) s by the clock"
    (seconds,) = _words(index, index.read_text(encoding="utf-8"), row)
    failures = re.findall(r"^(\d+) ([a-z_]+), such as:", text, re.MULTILINE)
    told = ", ".join(f"{count} {kind.replace('_', ' ')}" for count, kind in failures) or "none"
    return (
        f"{seconds} s on an {device}: {searches} searches; candidates that were rejected: {told}."
    )


def replay_text(document: Path) -> str:
    """Tables of the gates that ptxtune selfcheck --replay --json wrote."""
    found: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))
    gates = {gate["name"]: gate for gate in found["gates"]}
    rows = []
    for name, gate in gates.items():
        if told := re.fullmatch(r"(?P<of>regret of .+?)(?P<trials>, \d+ trials)?, mean", name):
            worst = gates[name.removesuffix("mean") + "worst"]
            budget = (told["trials"] or ", no search").removeprefix(", ")
            search = told["of"].removeprefix("regret of ")
            rows.append((search, budget, _percent(gate), _percent(worst), gate))
    lines = ["| search | budget | mean regret | worst | of |", "| --- | --- | ---: | ---: | --- |"]
    lines += [f"| {a} | {b} | {c} | {d} | {gate['detail']} |" for a, b, c, d, gate in rows]
    shares = [gate for name, gate in gates.items() if name.startswith("share of")]
    lines += ["", "| the tuner's part of a blind search's regret | limit | mean regrets |"]
    lines += ["| ---: | ---: | --- |"]
    lines += [
        f"| {_percent(gate)} after {gate['name'].rpartition(', ')[2]} | {gate['limit']:.0%} | "
        f"{gate['detail']} |"
        for gate in shares
    ]
    flips = [gate for name, gate in gates.items() if "winner flips after" in name]
    for gate in flips:
        lines += ["", f"{gate['name'].capitalize()}: {_percent(gate)} {_of_pairs(gate['detail'])}."]
    return "\n".join(lines)


def _percent(gate: dict[str, Any]) -> str:
    return "-" if gate["value"] is None else f"{gate['value']:.2%}"


def _of_pairs(detail: str) -> str:
    return "; ".join(detail.split("; ")[:2])


def _words(source: Path, text: str, pattern: str) -> tuple[str, ...]:
    found = re.search(pattern, text)
    if found is None:
        raise PtxtuneError(
            f"{source} does not say {pattern!r}, which docs/faults.md tells of it; was it written "
            f"by another version? Then mend reports/faults_page.py."
        )
    return found.groups()


def _numbers(source: Path, text: str, pattern: str) -> tuple[int, ...]:
    return tuple(map(int, _words(source, text, pattern)))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


SOAK_FAULTS = {
    "kill -9 of the tuner": "kills of the tuner",
    "kill -9 of a child": "kills of its helpers",
    "locked database": "locks of the database",
    "clock jumps": "jumps of the clock",
    "illegal address": "illegal addresses",
    "misaligned address": "misaligned addresses",
    "endless loop": "endless loops",
}
AUDIT = (
    "lost",
    "duplicated",
    "undetected",
    "slandered",
    "never finished",
    "forgotten",
    "wrong winner",
    "stray processes",
)

PARTS: dict[str, Callable[[Path], str]] = {
    "soak-no-gpu": lambda results: _wrapped(soak_text(results / "no-gpu" / "soak.txt")),
    "soak-h200": lambda results: _wrapped(soak_text(results / "nvidia-h200" / "soak.txt")),
    "tune-h200": lambda results: _wrapped(
        tune_text(results / "nvidia-h200" / "tune-14-buckets-quick.txt", results / "README.md")
    ),
    "selfcheck-h200": lambda results: _wrapped(
        selfcheck_text(results / "nvidia-h200" / "selfcheck.txt")
    ),
    "replay": lambda results: replay_text(results / "nvidia-h200" / "replay.json"),
}
"""What writes each part of the page, from the folder of results."""


def main() -> None:
    """Fills the page of the checkout that this runs in."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")


if __name__ == "__main__":
    main()
