"""Layout: sections to one self-contained HTML page, Plotly's script inlined, nothing fetched."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from reports.figures import Chart, figure_json
from reports.table import Table


class Page:
    """Collects sections, their links and the figures' data."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.sections: list[str] = []
        self.figures: dict[str, object] = {}

    def table(self, anchor: str, title: str, table: Table) -> None:
        """A section with a table; none where the table is empty."""
        if table.rows:
            self._section(anchor, title, f'<div class="scroll">{table.to_html()}</div>')

    def charts(self, anchor: str, title: str, charts: Sequence[Chart]) -> None:
        """A section with charts; none where there are none."""
        if charts:
            body = "\n".join(
                self._figure(f"{anchor}-{index}", chart) for index, chart in enumerate(charts)
            )
            self._section(anchor, title, f'<div class="grid">{body}</div>')

    def _figure(self, name: str, chart: Chart) -> str:
        self.figures[name] = figure_json(chart.figure)
        wide = ' class="wide"' if chart.wide else ""
        title = f"<h3>{html.escape(chart.title)}</h3>" if chart.title else ""
        caption = f"<figcaption>{html.escape(chart.caption)}</figcaption>"
        return f'<figure{wide}>{title}{caption}<div class="chart" id="{name}"></div></figure>'

    def _section(self, anchor: str, title: str, body: str) -> None:
        self.links.append(f'<a href="#{anchor}">{html.escape(title)}</a>')
        self.sections.append(
            f'<section id="{anchor}"><h2>{html.escape(title)}</h2>{body}</section>'
        )

    def render(self, *, title: str, heading: str, subtitle: str, notice: str, tiles: str) -> str:
        """The whole page.

        Args:
            title: of the window.
            heading: first line.
            subtitle: second line. These three are escaped.
            notice: HTML under the subtitle, or "".
            tiles: HTML of the large numbers, or "".
        """
        template = Template(files("reports").joinpath("page.html").read_text(encoding="utf-8"))
        return template.substitute(
            title=html.escape(title),
            heading=html.escape(heading),
            subtitle=html.escape(subtitle),
            notice=notice,
            tiles=tiles,
            links=" ".join(self.links),
            sections="\n".join(self.sections),
            plotly=get_plotlyjs(),
            figures=_script_json(self.figures),
        )


def _script_json(value: object) -> str:
    """JSON that cannot end its script element, whatever text it holds."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
