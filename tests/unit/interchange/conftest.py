"""Reports that tests of the report look at too."""

from tests.unit.report.conftest import hostile_report

__all__ = ["hostile_report"]
