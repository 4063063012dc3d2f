"""Trial files: trials as JSON lines with what they depend on, to be shared, recorded and replayed.

Line 1 is the header: format, version, count of rows, and the environments (device, toolchain,
protocol and layout version). Every other line is one trial; `check` is the CRC-32 of the rest of
its line. A file whose name ends in .gz is compressed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from db.records import PROTOCOL_VERSION, DeviceRecord, ToolchainRecord
from db.trial_rows import SharedTrial, trial_from_row, trial_to_row
from ptxgen.errors import PtxtuneError, TrialFileError
from ptxgen.json_text import json_value
from ptxgen.output_file import write_file
from ptxgen.weights.layout import LAYOUT_VERSION

FORMAT = "ptxtune-trials"
VERSION = 1
MAX_BYTES = 1 << 30
"""A larger file, unpacked, is refused: it is not one of ours, or a bomb."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a trial's outcome depends on besides problem and config."""

    device: DeviceRecord
    toolchain: ToolchainRecord
    protocol_version: int = PROTOCOL_VERSION
    layout_version: int = LAYOUT_VERSION


@dataclass(frozen=True, slots=True)
class TrialFile:
    """The content of one file.

    Attributes:
        environments: at least one where there are trials.
        trials: each names its environment by index.
        written: date and time, ISO 8601.
        note: in words, where the trials come from.
    """

    environments: tuple[Environment, ...]
    trials: tuple[SharedTrial, ...]
    written: str = ""
    note: str = ""


def write_trials(path: Path, content: TrialFile, *, replace: bool = False) -> None:
    """Writes a file in one step: complete, or not at all.

    Raises:
        FileError: there is a file already and replace is not set, or the disk refused.
    """
    lines = [_line(_header(content)), *(_line(_checked(item)) for item in content.trials)]
    data = "".join(lines).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # no time stamp: same trials, same bytes
    write_file(path, data, replace=replace)


def read_trials(path: Path) -> TrialFile:
    """Reads a whole file, every line checked.

    Raises:
        TrialFileError: no such file, not ours, of a newer version, cut off, or a damaged line,
            which is named by its number.
    """
    lines = _text(path).splitlines()
    header = _parsed(path, 1, lines[0] if lines else "")
    if header.get("format") != FORMAT:
        raise TrialFileError(
            f"{path}, line 1: this is no file of {FORMAT}. Give a file that ptxtune db export or "
            f"ptxtune selfcheck --record has written."
        )
    if header.get("version") != VERSION:
        raise TrialFileError(
            f"{path}, line 1: format version {header.get('version')!r}, and this ptxtune knows "
            f"{VERSION}. Upgrade ptxtune, or export again with this version."
        )
    environments = tuple(_environments(path, header))
    rows = header.get("rows")
    trials = tuple(
        _trial(path, number, line, len(environments)) for number, line in enumerate(lines[1:], 2)
    )
    if rows != len(trials):
        raise TrialFileError(
            f"{path}, line {len(lines)}: the file ends here after {len(trials)} trials, and its "
            f"header promises {rows!r}: it was cut off or joined. Export or copy it again."
        )
    return TrialFile(
        environments, trials, str(header.get("written", "")), str(header.get("note", ""))
    )


def _header(content: TrialFile) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "written": content.written,
        "note": content.note,
        "rows": len(content.trials),
        "environments": [asdict(item) for item in content.environments],
    }


def _environments(path: Path, header: dict[str, Any]) -> Iterator[Environment]:
    found: Any = header.get("environments")
    try:
        for item in found:
            yield Environment(
                DeviceRecord(**item["device"]),
                ToolchainRecord(**item["toolchain"]),
                int(item["protocol_version"]),
                int(item["layout_version"]),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise TrialFileError(
            f"{path}, line 1: an environment cannot be read ({type(error).__name__}: {error}). "
            f"Export the file again."
        ) from error


def _trial(path: Path, number: int, line: str, environments: int) -> SharedTrial:
    row = _parsed(path, number, line)
    check = row.pop("check", None)
    if check != row_check(row):
        raise TrialFileError(
            f"{path}, line {number}: its check is {check!r} and its content gives "
            f"{row_check(row)!r}: the line was changed or damaged. Export or copy the file again."
        )
    try:
        trial = trial_from_row(row)
        if not 0 <= trial.environment < environments:
            raise ValueError(f"environment {trial.environment} of {environments}")
    except PtxtuneError as error:
        raise TrialFileError(f"{path}, line {number}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise TrialFileError(
            f"{path}, line {number}: not a trial ({type(error).__name__}: {error}). "
            f"Export the file again."
        ) from error
    return trial


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json_value(line)
    except ValueError as error:
        raise TrialFileError(
            f"{path}, line {number}: not JSON ({str(error) or type(error).__name__}). Give a file "
            f"that ptxtune db export has written, and copy it in binary mode."
        ) from error
    if not isinstance(found, dict):
        raise TrialFileError(
            f"{path}, line {number}: a JSON {type(found).__name__}, not an object. Give a file "
            f"that ptxtune db export has written."
        )
    return found


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as content:
            data = content.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise TrialFileError(
                f"{path} holds over {MAX_BYTES} bytes, more than any export. Check the path."
            )
        return data.decode()
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise TrialFileError(
            f"{path} is damaged or cut off ({error}). Export or copy it again."
        ) from error
    except OSError as error:
        raise TrialFileError(
            f"{path} cannot be read: {error.strerror or error}. Check the path."
        ) from error


def _checked(trial: SharedTrial) -> dict[str, Any]:
    row = trial_to_row(trial)
    return {**row, "check": row_check(row)}


def row_check(row: dict[str, Any]) -> str:
    """CRC-32 of a row without its own check; against damage, not against forgers."""
    return f"{zlib.crc32(json.dumps(row, sort_keys=True).encode()):08x}"


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False) + "\n"


def environment_index(environments: Sequence[Environment]) -> dict[Environment, int]:
    """Distinct environments in order of first appearance -> their index."""
    return {item: index for index, item in enumerate(dict.fromkeys(environments))}
