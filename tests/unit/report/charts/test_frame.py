"""Placing labels: nothing overlaps, nothing is cut, and the same points give the same places."""

import random
from itertools import combinations

import pytest

from aegish_dist.report.charts.frame import (
    MARK_PX,
    LabelledPoint,
    PixelBox,
    PixelLine,
    place_labels,
)

AREA = PixelBox(0, 0, 640, 400)
LONG = "Foundation-Sec-8B-Instruct:host"


def scattered(number: int) -> list[LabelledPoint]:
    draw = random.Random(number)
    return [
        LabelledPoint(draw.uniform(0, 640), draw.uniform(0, 400), f"{LONG[: 8 + at % 20]}{at}")
        for at in range(number)
    ]


CROWD = [LabelledPoint(300 + at % 3, 200 + at // 3, f"model-{at}") for at in range(9)]
EQUAL = [LabelledPoint(640, 0, f"alike-{at}") for at in range(5)]


@pytest.mark.parametrize(
    "points", [scattered(1), scattered(2), scattered(3), scattered(9), scattered(30), CROWD, EQUAL]
)
def test_labels_cover_neither_each_other_nor_points(points: list[LabelledPoint]) -> None:
    placed = place_labels(points, AREA)
    assert placed == place_labels(points, AREA)
    lines = "\n".join(label.text for label in placed).split("\n")
    assert sorted(lines) == sorted(point.text for point in points)
    assert all(AREA.holds(label.box) for label in placed)
    for one, other in combinations(placed, 2):
        assert not one.box.meets(other.box)
        assert other.line is None or not other.line.crosses(one.box)
        assert one.line is None or not one.line.crosses(other.box)
    for point in points:
        assert not any(label.box.meets(point.mark) for label in placed)


def test_a_label_that_is_away_from_its_point_has_a_line_to_it() -> None:
    placed = place_labels(CROWD, AREA)
    ends = {(each.line.x2, each.line.y2) for each in placed if each.line}
    assert ends
    assert ends <= {(point.x, point.y) for point in CROWD}


def test_a_label_stands_on_the_right_of_a_lone_point() -> None:
    (label,) = place_labels([LabelledPoint(100, 100, "one")], AREA)
    assert label.align == "left"
    assert label.box.left > 100 + MARK_PX
    assert label.line is None


def test_a_label_keeps_off_lines_along_it() -> None:
    """A line through the text would strike it out."""
    stroke = PixelLine(0, 100, 640, 100)
    (label,) = place_labels([LabelledPoint(100, 100, "one")], AREA, lines=[stroke])
    assert not stroke.crosses(label.box)


def test_labels_that_do_not_fit_are_left_out() -> None:
    small = PixelBox(0, 0, 60, 30)
    points = [LabelledPoint(3, 3, "one"), LabelledPoint(3, 25, LONG)]
    assert [label.text for label in place_labels(points, small)] == ["one"]
