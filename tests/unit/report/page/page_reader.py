"""Reading a page back: its elements, its text, and whether it is well nested."""

from html.parser import HTMLParser

VOID = {"meta", "wbr", "img"}


class Page(HTMLParser):
    """Collects elements and text, and checks the nesting."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of every element with a tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.elements.append((tag, dict(attrs)))
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
