"""Table: rows of text cells, rendered as aligned console text, Markdown or HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column; numbers stand right, text left. `unit` is shown in the head only."""

    title: str
    unit: str = ""
    numeric: bool = True

    @property
    def head(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and their cells; every row has one text cell a column.

    Raises:
        ValueError: a row has another number of cells.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {row!r} has {len(row)} cells for {len(self.columns)} columns"
                )

    def to_text(self) -> str:
        """Aligned columns under a ruled head, for the console."""
        heads = tuple(column.head for column in self.columns)
        widths = [max(map(len, cells)) for cells in zip(heads, *self.rows, strict=True)]
        lines = [self._line(heads, widths), "  ".join("-" * width for width in widths)]
        lines += [self._line(row, widths) for row in self.rows]
        return "\n".join(lines)

    def _line(self, cells: tuple[str, ...], widths: list[int]) -> str:
        padded = (
            cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(cells, widths, self.columns, strict=True)
        )
        return "  ".join(padded).rstrip()

    def to_markdown(self) -> str:
        """A GitHub-flavoured Markdown table."""
        rule = ("---:" if column.numeric else "---" for column in self.columns)
        lines = [_markdown_line(column.head for column in self.columns), _markdown_line(rule)]
        lines += [_markdown_line(cell.replace("|", "\\|") for cell in row) for row in self.rows]
        return "\n".join(lines)

    def to_html(self) -> str:
        """An HTML table; every cell is escaped."""
        heads = "".join(
            f'<th scope="col"{_html_class(column)}>{html.escape(column.title)}'
            + (f" <small>{html.escape(column.unit)}</small>" if column.unit else "")
            + "</th>"
            for column in self.columns
        )
        body = "\n".join(f"<tr>{self._html_row(row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"

    def _html_row(self, row: tuple[str, ...]) -> str:
        return "".join(
            f"<td{_html_class(column)}>{html.escape(cell)}</td>"
            for cell, column in zip(row, self.columns, strict=True)
        )


def _html_class(column: Column) -> str:
    return ' class="num"' if column.numeric else ""


def _markdown_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
