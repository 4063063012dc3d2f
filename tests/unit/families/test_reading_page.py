"""docs/reading-a-kernel.md quotes the golden kernel word for word, and in its order."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reading-a-kernel.md").read_text()
GOLDEN = (ROOT / "tests" / "golden" / "mma_decode_fp16_sym_sm90a.cu").read_text()


def test_every_quotation_is_in_the_file_and_in_its_order() -> None:
    quoted = re.findall(r"^```cuda\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    pieces = [piece for block in quoted for piece in block.split("...\n")]
    assert len(pieces) > 12
    position = 0
    for piece in pieces:
        found = GOLDEN.find(piece, position)
        assert found >= 0, piece
        position = found + len(piece)


def test_its_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / "docs" / link).exists(), link
