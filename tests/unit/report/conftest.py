"""Reports that several tests of rendering look at."""

import pytest

from aegish_dist.core.run import RunDataset
from aegish_dist.report.data import Halted, ReportData
from tests.unit.report.reports import HOSTILE, a_model, a_report, failures


@pytest.fixture
def hostile_report() -> ReportData:
    """A report in which everything foreign is hostile."""
    entry = a_model(HOSTILE, simulated=True)
    entry["categories"] = {HOSTILE: entry["categories"]["shell"]}
    return a_report(
        entry,
        name=HOSTILE,
        datasets=(RunDataset(HOSTILE, "ab" * 32, 300, 200),),
        failures=failures(HOSTILE, HOSTILE)[:1],
        halted=(Halted(HOSTILE, "parked", HOSTILE),),
    )


@pytest.fixture
def failed_report() -> ReportData:
    """A report on a model with failed calls that is parked."""
    halted = (Halted("acme/guard-1", "parked", "no such key"),)
    return a_report(failures=failures(), halted=halted)


@pytest.fixture
def fourteen() -> ReportData:
    """A report on fourteen models with long ids and eleven categories each."""
    names = "bind-shell command download file-read file-write inherit library-load "
    names += "privilege-escalation reverse-shell shell upload"
    category = a_model()["categories"]["shell"]
    categories = dict.fromkeys(names.split(), category)
    ids = [f"hf-inference-providers/organisation/Guard-{n}B-Instruct:host" for n in range(14)]
    return a_report(*(a_model(each, categories=categories) for each in ids))
