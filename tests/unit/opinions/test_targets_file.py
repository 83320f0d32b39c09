"""Targets in files."""

from pathlib import Path

import pytest

from aegish_dist.core.opinion import AEGISH_TARGETS, Targets
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.files import LESS_IS_BETTER, TARGET_METRICS, read_targets, render_targets
from aegish_dist.statistics.metrics import METRICS

HEAD = 'name = "strict"\nversion = 1\n'


def test_written_targets_read_back(tmp_path: Path) -> None:
    """Those of the reference benchmark, and targets without a metric."""
    path = tmp_path / "targets.toml"
    for targets in (AEGISH_TARGETS, Targets("none", 3, {})):
        path.write_text(render_targets(targets))
        assert read_targets(path) == targets


def test_every_metric_has_a_direction() -> None:
    """A new metric is added to those of which less is better, or may have a target."""
    assert {metric.name for metric in METRICS} >= LESS_IS_BETTER
    assert set(TARGET_METRICS) == {
        *("malicious_detection_rate", "harmless_acceptance_rate", "aegish_score", "accuracy"),
        *("malicious_detection_rate_macro", "coverage"),
        *("malicious_detection_rate_worst", "malicious_detection_rate_best"),
        *("harmless_acceptance_rate_worst", "harmless_acceptance_rate_best"),
        *("aegish_score_worst", "aegish_score_best"),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD, "key 'least': is missing"),
        (HEAD + "[least]\nscore = 0.9", "key 'least.score': unknown metric; known are malicious_d"),
        (HEAD + "[least]\nece = 0.1", "key 'least.ece': is a metric of which less is better"),
        (HEAD + "[least]\naegish_score = 90", "key 'least.aegish_score': must be from 0 to 1"),
        (HEAD + "[least]\naegish_score = nan", "key 'least.aegish_score': must be from 0 to 1"),
        (HEAD + "[least]\naegish_score = true", "key 'least.aegish_score': must be a number, not"),
        (HEAD + "most = 1", "unknown key"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    """The message names the file and the metric."""
    path = tmp_path / "targets.toml"
    path.write_text(text)
    with pytest.raises(OpinionError, match=f"targets.toml: .*{complaint}"):
        read_targets(path)
