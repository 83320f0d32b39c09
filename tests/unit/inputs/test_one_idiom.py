"""Input is parsed and checked in one place."""

from tests.house import ROOT, imports, parsed, product

PACKAGE = ROOT / "aegish_dist"


def importers(*prefixes: str) -> set[str]:
    """Return the packages of the product whose modules import something of that name."""
    paths = [path for name, path in product().items() if name.startswith("aegish_dist")]
    found = [path for path in paths if any(n.startswith(prefixes) for n in imports(parsed(path)))]
    return {path.relative_to(PACKAGE).parts[0] for path in found}


def test_documents_of_others_are_parsed_in_inputs_alone() -> None:
    assert importers("yaml") == {"inputs"}
    assert importers("tomllib") <= {"inputs", "ratelimit"}  # which reads a file of its own


def test_answers_of_providers_alone_are_read_leniently() -> None:
    assert importers("aegish_dist.providers.lenient") == {"providers"}


def test_every_reader_of_files_checks_by_types() -> None:
    readers = {"settings.py", "models", "simulator", "prompts", "datasets", "interchange"}
    assert importers("aegish_dist.inputs.checking") >= readers
    assert not importers("pydantic", "jsonschema", "attrs")
