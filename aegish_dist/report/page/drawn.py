"""Each section of the page, drawn in the way of its content."""

from collections.abc import Sequence
from dataclasses import dataclass

from aegish_dist.report.charts import DrawnChart
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel, Section
from aegish_dist.report.page.differences import TITLE as DIFFERENCES
from aegish_dist.report.page.differences import differences_section
from aegish_dist.report.page.heat_map import heat_key, heat_style, with_intervals
from aegish_dist.report.page.leaderboard import bars_note, leaderboard_style
from aegish_dist.report.page.markup import anchor
from aegish_dist.report.page.reproduction import with_commands, without_commands
from aegish_dist.report.page.tables import table_section


@dataclass(frozen=True, slots=True)
class DrawnReport:
    """A report on its way to the page."""

    data: ReportData
    entries: Sequence[RankedModel]
    """Its models, best first."""
    charts: Sequence[DrawnChart]
    """Its charts, in order."""

    def anchor(self, name: str, section: Section) -> str:
        """Return the id of a section."""
        return anchor(DIFFERENCES if name == "differences" else section.title)

    def section(self, name: str, section: Section, below: str) -> str:
        """Return a section as HTML."""
        match name:
            case "leaderboard":
                style = leaderboard_style(section, self.entries, self.data.targets)
                note = f"<p>{bars_note(self.entries)}</p>\n"
                return table_section(section, style, above=note, below=below)
            case "categories":
                style = heat_style(section, self.entries)
                shown = with_intervals(section, self.entries)
                return table_section(shown, style, above=heat_key(), below=below)
            case "differences" if self.data.comparison is not None:
                # The report has the differences from one model, the page those of all pairs.
                order = [entry.model for entry in self.entries]
                return differences_section(self.data.comparison, order, below)
            case "provenance" if section.title == "Provenance":
                shown = without_commands(section, self.data)
                return table_section(shown, below=with_commands(self.data) + below)
            case _:
                return table_section(section, below=below)
