"""YAML of GTFOBins, read without trust in it.

Aliases and merges are refused: a kilobyte of them unfolds to gigabytes.
"""

from typing import Any

import yaml

MAX_DEPTH = 20
"""Levels of nesting; files of GTFOBins have six."""
MAX_NUMBER_CHARS = 40
"""Of a number; Python's have no end, which takes quadratic time."""
MERGE = "tag:yaml.org,2002:merge"
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):
    # The C loader is four times as fast, but deep nesting crashes the process with it.
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refused("aliases are not read", event.start_mark)
        if self.depth == MAX_DEPTH:
            raise _refused(f"more than {MAX_DEPTH} levels are not read", event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        _check(node)
        return node


def first_document(text: str) -> object:
    """Parse the first document of a text; what follows it is not looked at.

    Raises:
        yaml.MarkedYAMLError: It is not such YAML; tells the line.
        yaml.YAMLError: Nor is it, and no line is known.
        ValueError: Nor is it: a date that no calendar has.
    """
    loader = _Loader(text)
    try:
        node = loader.get_node() if loader.check_node() else None
        return None if node is None else loader.construct_document(node)
    except (AttributeError, LookupError) as error:  # of its constructors, given such as `!!int ""`
        raise yaml.YAMLError("a value is not what its tag says") from error
    finally:
        loader.dispose()


def _check(node: Any) -> None:
    if node.tag == MERGE:
        raise _refused("merges are not read", node.start_mark)
    if node.tag in NUMBERS and len(node.value) > MAX_NUMBER_CHARS:
        problem = f"numbers of more than {MAX_NUMBER_CHARS} characters are not read"
        raise _refused(problem, node.start_mark)


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
