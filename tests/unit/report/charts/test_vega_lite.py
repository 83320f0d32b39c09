"""Colours that survive colour blindness, grey paper and dark screens."""

import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import aegish_dist.report.page
from aegish_dist.report.charts.vega_lite import PALETTE, provider_styles

STYLE = Path(aegish_dist.report.page.__file__).with_name("assets") / "charts.css"
DARK = tuple(re.findall(r"--chart-\d: (#[0-9a-f]{6})", STYLE.read_text()))

# Machado, Oliveira & Fernandes 2009, IEEE TVCG 15:1291, severity 1, on linear RGB.
VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                   (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750),
          (0.0193339, 0.1191920, 0.9503041))  # fmt: skip
WHITE = (0.95047, 1.0, 1.08883)
Vector = tuple[float, ...]


def linear(color: str) -> Vector:
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def times(matrix: tuple[Vector, ...], vector: Vector) -> Vector:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def cielab(rgb: Vector) -> Vector:
    clipped = tuple(min(max(c, 0.0), 1.0) for c in rgb)
    shares = (x / w for x, w in zip(times(TO_XYZ, clipped), WHITE, strict=True))
    x, y, z = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in shares)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("palette", [PALETTE, DARK])
@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart(vision: str, palette: tuple[str, ...]) -> None:
    """Any two differ by 20 in CIELAB, where 2.3 is just noticeable."""
    seen = [cielab(times(VISION[vision], linear(color))) for color in palette]
    for one, other in combinations(seen, 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 20


@pytest.mark.parametrize("palette", [PALETTE, DARK])
def test_colours_differ_in_lightness(palette: tuple[str, ...]) -> None:
    """Grey paper keeps nothing else: six greys, 7 of 100 apart."""
    light = sorted(cielab(linear(color))[0] for color in palette)
    assert min(high - low for low, high in pairwise(light)) > 7


@pytest.mark.parametrize(("palette", "paper"), [(PALETTE, "#ffffff"), (DARK, "#191b1e")])
def test_colours_stand_out_from_the_paper(palette: tuple[str, ...], paper: str) -> None:
    """A contrast of 2.5 at least; WCAG asks 3 of marks, which have a shape and a label besides."""

    def luminance(color: str) -> float:
        return times(TO_XYZ, linear(color))[1] + 0.05

    for color in palette:
        low, high = sorted((luminance(color), luminance(paper)))
        assert high / low > 2.5


def test_every_provider_has_a_style_of_its_own() -> None:
    names = ["openai", "google", *(f"provider-{n:02}" for n in range(28))]
    styles = provider_styles(f"{name}/model" for name in names)
    assert len({(style["color"], style["shape"]) for style in styles.values()}) == 30
    assert styles["openai"] == provider_styles(["openai/gpt-5.1"])["openai"]
    assert list(styles)[:2] == ["openai", "google"]
