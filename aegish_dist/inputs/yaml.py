"""YAML documents, parsed without trust in them.

Aliases and merges are refused: a kilobyte of them unfolds to gigabytes.
"""

from typing import Any

import yaml

from aegish_dist.errors import InputError

MAX_DEPTH = 20  # levels of nesting; files of GTFOBins have six
MAX_NUMBER_CHARS = 40  # python's integers have no limit, and take quadratic time
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


def parse_yaml(text: str) -> object:
    """Parse the first document of a text; an InputError tells the line where it is known."""
    loader = _Loader(text)
    try:
        node = loader.get_node() if loader.check_node() else None
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"is not YAML: {error.problem}", line=line) from None
    except (AttributeError, LookupError):  # of its constructors, given such as `!!int ""`
        raise InputError("is not YAML: a value is not what its tag says") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]  # of a date that no calendar has, among others
        raise InputError(f"is not YAML: {reason}") from None
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
