"""Words that go with numbers."""


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return how many there are of something: `1 command`, `1,172 commands`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{plural}"
