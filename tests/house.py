"""The house measured: its mass by room, its reach, its words, and what is not written plainly.

`tests/house.toml` holds what it may be; `tests/unit/test_house.py` and `test_plainness.py` compare.

    python -m tests.house            prints what has changed against the budgets
    python -m tests.house --lower    lowers every number of the file that can be lower
"""

import ast
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests/house.toml"
PACKAGES = ("aegish_dist", "workers")
ENTRIES = (
    "workers.__main__",
    "workers.tasks",
    "aegish_dist.cli.submit",
    "aegish_dist.cli.aggregate",
    "aegish_dist.cli.compare",
    "aegish_dist.cli.report",
    "aegish_dist.cli.status",
)


@cache
def product() -> dict[str, Path]:
    """Return the product's modules by dotted name, migrations left out."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
        if "versions" not in path.parts
    }


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Return a tree and all below it, which takes ten times as long as to look at each of them."""
    return list(ast.walk(tree))


def mass(tree: ast.AST) -> int:
    """Count expressions and statements: formatting does not change it, nor does packing."""
    return sum(isinstance(node, ast.expr | ast.stmt) for node in nodes(tree))


def mass_by_room() -> dict[str, int]:
    """Return the mass of each folder of the product, with that of the whole as `total`."""
    rooms: Counter[str] = Counter()
    for path in product().values():
        room = path.parent.relative_to(ROOT).as_posix()
        rooms[room] += mass(parsed(path))
    return {"total": rooms.total(), **dict(sorted(rooms.items()))}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)


def reach(entry: str) -> int:
    """Count the modules that one imports, directly or not, lazily or for types too."""
    modules = product()
    seen: set[str] = set()
    left = [entry]
    while left:
        name = left.pop()
        if name in modules and name not in seen:
            seen.add(name)
            left += imports(parsed(modules[name]))
    return sum(modules[name].name != "__init__.py" for name in seen)


def words_of_docs() -> int:
    pages = (ROOT / "docs").rglob("*.md")
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def is_condition(node: ast.expr) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool")):
            return True
        case ast.BoolOp(values=values):
            return all(map(is_condition, values))
    return False


def times_a_condition(node: ast.AST) -> bool:
    """Return whether a condition chooses by multiplying; a literal number may count it."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=int() | float())):
            return False
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return is_condition(left) or is_condition(right)
    return False


def star_of_a_literal(node: ast.AST) -> bool:
    match node:
        case ast.Starred(value=ast.Tuple() | ast.List()):
            return True
    return False


def nested_conditional(node: ast.AST) -> bool:
    """Return whether a conditional expression holds another one."""
    if not isinstance(node, ast.IfExp):
        return False
    return any(isinstance(part, ast.IfExp) for part in ast.walk(node) if part is not node)


def condition_in_braces(node: ast.AST) -> bool:
    """Return whether a part of an f-string chooses: by a condition, a comparison, `and` or `or`."""
    if not isinstance(node, ast.FormattedValue):
        return False
    parts = ast.walk(node.value)
    return any(isinstance(part, ast.IfExp | ast.Compare | ast.BoolOp) for part in parts)


def filter_of_none(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="filter"), args=[ast.Constant(value=None), *_]):
            return True
    return False


COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def dense_comprehension(node: ast.AST) -> bool:
    """Return whether it has more than one `for` or one `if`, or spans more than four lines."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    conditions = sum(len(each.ifs) for each in node.generators)
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    return len(node.generators) > 1 or conditions > 1 or lines > 4


def walrus_within(tree: ast.AST) -> int:
    """Count assignments in expressions other than the head of an `if` or `while`."""
    everywhere = sum(isinstance(node, ast.NamedExpr) for node in nodes(tree))
    heads = (node.test for node in nodes(tree) if isinstance(node, ast.If | ast.While))
    return everywhere - sum(map(walruses_of_a_head, heads))


def walruses_of_a_head(node: ast.AST) -> int:
    """Count assignments of a condition, without those that a comprehension in it repeats."""
    if isinstance(node, COMPREHENSIONS | ast.Lambda):
        return 0
    below = sum(map(walruses_of_a_head, ast.iter_child_nodes(node)))
    return isinstance(node, ast.NamedExpr) + below


def counted(offends: Callable[[ast.AST], bool]) -> Callable[[ast.AST], int]:
    return lambda tree: sum(map(offends, nodes(tree)))


OFFENCES: Mapping[str, Callable[[ast.AST], int]] = {
    "times_a_condition": counted(times_a_condition),
    "star_of_a_literal": counted(star_of_a_literal),
    "nested_conditional": counted(nested_conditional),
    "condition_in_braces": counted(condition_in_braces),
    "filter_of_none": counted(filter_of_none),
    "dense_comprehension": counted(dense_comprehension),
    "walrus_within": walrus_within,
}
"""What is not written plainly: by its name, what counts it. Ruff has no rule for any of these."""


@cache
def offences_by_module(kind: str) -> dict[str, int]:
    found = {
        path.relative_to(ROOT).as_posix(): OFFENCES[kind](parsed(path))
        for path in product().values()
    }
    return {name: number for name, number in sorted(found.items()) if number}


class Budget(NamedTuple):
    """What a number may be; a raised one keeps what it was, and says why."""

    now: int
    was: int
    why: str


def read_budget(value: object) -> Budget:
    match value:
        case int():
            return Budget(value, value, "")
        case {"now": int(now), "was": int(was), "why": str(why), **rest} if not rest:
            return Budget(now, was, why)
    raise ValueError(f"a number, or {{ now = 2, was = 1, why = '...' }}, and not {value}")


@cache
def measured() -> dict[str, dict[str, int]]:
    """Return what the house is now, by table and key of the file."""
    return {
        "mass": mass_by_room(),
        "reach": {entry: reach(entry) for entry in ENTRIES},
        "docs": {"words": words_of_docs()},
    }


class House(NamedTuple):
    """The file."""

    sum_of_budgets: int
    budgets: dict[str, dict[str, Budget]]
    sum_of_offences: int
    offences: dict[str, dict[str, int]]


def read_house(text: str) -> House:
    document = tomllib.loads(text)
    budgets = {
        table: {key: read_budget(value) for key, value in document[table].items()}
        for table in ("mass", "reach", "docs")
    }
    return House(
        document["sum_of_budgets"], budgets, document["sum_of_offences"], document["offences"]
    )


HEAD = """\
# What the house may be. A number that a change raises is written as
#     "aegish_dist/core" = { now = 9_400, was = 9_304, why = "what was deleted for it, or why nothing could be" }
# and the sum of all that they were stays. A number that can be lower is lowered with the sum:
#     python -m tests.house --lower
"""
ABOUT = {
    "mass": "# Expressions and statements of the product by folder, without migrations.",
    "reach": "# Modules of the product that an entry point imports, directly or not.",
    "docs": "",
    "offences": "# What is not written plainly, by module: this list only shrinks.",
}


def written(house: House) -> str:
    """Return the file as text."""
    lines = [HEAD + f"sum_of_budgets = {house.sum_of_budgets}"]
    lines.append(f"sum_of_offences = {house.sum_of_offences}")
    for table, budgets in house.budgets.items():
        lines += ["", *filter(None, [ABOUT[table]]), f"[{table}]"]
        for key, budget in budgets.items():
            value = str(budget.now)
            if budget.now != budget.was:
                why = json.dumps(budget.why, ensure_ascii=False)  # a string of TOML, too
                value = f"{{ now = {budget.now}, was = {budget.was}, why = {why} }}"
            lines.append(f'"{key}" = {value}')
    lines += ["", ABOUT["offences"]]
    for kind, modules in house.offences.items():
        lines.append(f"[offences.{kind}]")
        lines += [f'"{name}" = {number}' for name, number in modules.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def lowered(house: House) -> House:
    """Return the file with every number as low as the house allows, and none higher."""
    present = measured()
    budgets: dict[str, dict[str, Budget]] = {}
    for table, known in house.budgets.items():
        budgets[table] = {}
        for key, budget in known.items():
            number = present[table].get(key)
            if number is not None:
                now, was = min(budget.now, number), min(budget.was, number)
                budgets[table][key] = Budget(now, was, budget.why)
    offences: dict[str, dict[str, int]] = {}
    for kind, modules in house.offences.items():
        found = offences_by_module(kind)
        numbers = {name: min(number, found.get(name, 0)) for name, number in modules.items()}
        offences[kind] = {name: number for name, number in numbers.items() if number}
    return House(sum_of(budgets), budgets, sum_of_offences(offences), offences)


def sum_of(budgets: Mapping[str, Mapping[str, Budget]]) -> int:
    return sum(budget.was for known in budgets.values() for budget in known.values())


def sum_of_offences(offences: Mapping[str, Mapping[str, int]]) -> int:
    return sum(sum(modules.values()) for modules in offences.values())


def changes(house: House) -> Iterator[str]:
    """Yield the numbers that are not those of the file."""
    for table, numbers in measured().items():
        known = house.budgets[table]
        for key, number in numbers.items():
            budget = known.get(key, Budget(0, 0, ""))
            if number != budget.now:
                yield f"{table} of {key}: {number:,} of {budget.now:,}"
    yield from offence_changes(house)


def offence_changes(house: House) -> Iterator[str]:
    for kind in OFFENCES:
        listed, found = house.offences.get(kind, {}), offences_by_module(kind)
        for name in sorted({*listed, *found}):
            before, now = listed.get(name, 0), found.get(name, 0)
            if now != before:
                yield f"{kind} in {name}: {now} of {before}"


def main() -> None:
    house = read_house(FILE.read_text(encoding="utf-8"))
    if "--lower" in sys.argv:
        house = lowered(house)
        FILE.write_text(written(house), encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in changes(house))


if __name__ == "__main__":
    main()
