"""The effect of an overlay, from two small documents."""

from typing import Any

from aegish_dist.core.overlay_effect import Moved, overlay_effect
from aegish_dist.report.quality import overlay_section


def document(*models: tuple[str, float | None, int | None]) -> dict[str, Any]:
    return {
        "models": [
            {"model": name, "metrics": {"aegish_score": {"value": score}}}
            for name, score, _ in models
        ],
        "ranking": [{"model": name, "rank": rank} for name, _, rank in models],
    }


def test_models_are_compared_by_name() -> None:
    """In the order of the ranking under the overlay; undefined stays undefined."""
    effect = overlay_effect(
        document(("a", 0.9, 1), ("b", 0.5, 2), ("c", None, None)),
        document(("b", 0.75, 1), ("a", 0.625, 2), ("c", None, None)),
    )
    assert [each.model for each in effect] == ["b", "a", "c"]
    first, _, last = effect
    assert first.rank == Moved(2, 1)
    assert first.metrics == {"aegish_score": Moved(0.5, 0.75)}
    assert first.document == {
        "model": "b",
        "rank": {"without": 2, "with": 1, "difference": -1},
        "metrics": {"aegish_score": {"without": 0.5, "with": 0.75, "difference": 0.25}},
    }
    assert last.metrics["aegish_score"].difference is None


def test_a_report_shows_differences_in_points() -> None:
    """Signed, over the values that they are between."""
    effect = overlay_effect(document(("a", 0.9, 1)), document(("a", 0.95, 1)))
    section = overlay_section(effect)
    assert section is not None
    ((model, place, score, *others),) = section.rows
    assert (model.text, place.text) == ("a", "1")
    assert (score.text, score.detail) == ("+5.00", "90.0 \N{RIGHTWARDS ARROW} 95.0")
    assert {cell.text for cell in others} == {"\N{EN DASH}"}
    assert overlay_section([]) is None
