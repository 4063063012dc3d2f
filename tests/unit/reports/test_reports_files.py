"""Report files and row files appear whole or not at all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ptxgen.errors import FileError
from ptxgen.output_file import write_file
from reports.rows import device_slug, write_rows

ROW = {
    "contender": "ptxtune", "device": "NVIDIA H200", "dtype": "fp16", "zero": "sym", "group": 128,
    "n": 64, "k": 256, "m": 1, "protocol": "plain", "predicted": False, "time_us": 3.5,
}  # fmt: skip


def test_text_is_written_with_unix_newlines(tmp_path: Path) -> None:
    path = write_file(tmp_path / "new" / "report.md", "a\nµ\n")
    assert path.read_bytes() == "a\nµ\n".encode()
    assert [file.name for file in path.parent.iterdir()] == ["report.md"]


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")
    write_file(path, "new", replace=True)
    assert path.read_text() == "new"


@pytest.mark.parametrize("inside", ["file/report.md", "file/deeper/report.md"])
def test_unwritable_folder_is_named(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"report\.md.*cannot be written"):
        write_file(tmp_path / inside, "x")


def test_folder_in_the_way_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report.md").mkdir()
    with pytest.raises(FileError, match="Nothing was changed"):
        write_file(tmp_path / "report.md", "x")
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


WRITE_WITHIN_LIMIT = """
import resource, signal, sys
from pathlib import Path
from ptxgen.errors import FileError
from ptxgen.output_file import write_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_file(Path(sys.argv[1]), "x" * 100_000, replace=True)
except FileError as error:
    print(error)
"""


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", WRITE_WITHIN_LIMIT, str(path)],
        capture_output=True, text=True, check=True, cwd=root,
    )  # fmt: skip
    assert "cannot be written (File too large)" in done.stdout
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


@pytest.mark.parametrize(
    ("name", "slug"),
    [("NVIDIA H200", "nvidia-h200"), ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
     ("../../etc", "etc"), ("", "unknown")],
)  # fmt: skip
def test_device_slug(name: str, slug: str) -> None:
    assert device_slug(name) == slug


def test_rows_go_to_one_file_a_device_and_variant(tmp_path: Path) -> None:
    rows = [
        ROW,
        ROW | {"contender": "cublas", "time_us": 9.5},
        ROW | {"dtype": "bf16", "zero": "int", "group": 256},
        ROW | {"predicted": True},
        ROW | {"device": "NVIDIA L40S"},
    ]
    files = write_rows(tmp_path, rows)
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "nvidia-h200/bf16-int-gk.jsonl",
        "nvidia-h200/fp16-sym-g128.jsonl",
        "nvidia-h200/predicted-fp16-sym-g128.jsonl",
        "nvidia-l40s/fp16-sym-g128.jsonl",
    ]
    read = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(map(str, read)) == sorted(map(str, rows))
