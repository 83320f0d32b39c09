"""Texts in SQL."""


def escaped_pattern(text: str) -> str:
    r"""Return text as a pattern of LIKE that matches nothing but itself."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
