"""`docs/guides/add-a-verdict-column.md`: one more fact of a verdict, followed step by step."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.howto.walkthrough import NEXT_REVISION, ROOT, Walkthrough

pytestmark = pytest.mark.long
PAGE = "add-a-verdict-column.md"

RECORD = "aegish_dist/core/verdict.py"
MIGRATION = f"aegish_dist/db/migrations/versions/{NEXT_REVISION}_hourly_cache_tokens.py"
SHOWN = {
    "aegish_dist/report/verdicts.py",
    "docs/reference/data-model.md",
    "docs/reference/files.md",
}
KEY = "cache_write_1h_tokens"
LINE = {"model": "m", "command": "ls", "target": "harmless", "completion": ""}
WORKER = """if True:
    import os, sys
    from aegish_dist.core.verdict import Completion, Usage
    from aegish_dist.core.verdict import Outcome, Verdict
    from aegish_dist.db.engine import open_engine, transaction
    from aegish_dist.db.schema import VerdictKey
    from aegish_dist.db.verdicts import insert_verdicts
    from sqlalchemy import text

    answer = Completion("", usage=Usage(cache_write_tokens=7, cache_write_1h_tokens=6))
    with transaction(open_engine(os.environ["AEGISH_DIST_DATABASE_URL"])) as session:
        model, sample = session.execute(
            text("SELECT run_model_id, sample_key FROM verdicts LIMIT 1")
        ).one()
        key = VerdictKey(model, sample, epoch=1, generation=1)
        insert_verdicts(session, [(key, Verdict(Outcome.TIMEOUT_ERROR, answer))])
"""


def test_a_field_a_migration_and_its_words_are_enough(walkthrough: Walkthrough) -> None:
    assert (walkthrough.created, walkthrough.edited) == ({MIGRATION}, {RECORD, *SHOWN})
    assert "Success" in walkthrough.run("-m", "mypy", RECORD, MIGRATION, timeout_s=300)


def test_the_tests_that_the_page_names_pass(walkthrough: Walkthrough) -> None:
    page = (ROOT / "docs/guides" / PAGE).read_text(encoding="utf-8")
    for paths in re.findall(r"^pytest (.+)$", page, re.MULTILINE):
        walkthrough.test(*paths.split())


def test_the_column_goes_everywhere(
    walkthrough: Walkthrough, unmigrated_url: str, tmp_path: Path
) -> None:
    """Into the table, lines and Parquet, from files and from workers, and back."""

    def run(*arguments: str) -> str:
        return walkthrough.run(*arguments, AEGISH_DIST_DATABASE_URL=unmigrated_url, timeout_s=120)

    def aegish(*arguments: str) -> str:
        return run("-m", "aegish_dist", *arguments).strip()

    aegish("db", "upgrade")
    assert aegish("db", "check") == ""
    given, table = tmp_path / "given.jsonl", str(tmp_path / "table.parquet")
    given.write_text(json.dumps(LINE | {KEY: 2**62}))
    first = aegish("verdicts", "import", str(given))
    run("-c", WORKER)

    aegish("verdicts", "export", "--run-id", first, "-o", table)
    second = aegish("verdicts", "import", table)

    exported = pq.read_table(table)
    assert exported.schema.field(KEY).type == pa.int64()
    assert exported[KEY].to_pylist() == [2**62, 6]
    lines = aegish("verdicts", "export", "--run-id", second).splitlines()
    assert [json.loads(line)[KEY] for line in lines] == [2**62, 6]
    keys = list(json.loads(lines[0]))
    assert keys[keys.index(KEY) - 1] == "cache_write_tokens"


@pytest.mark.parametrize("wrong", [-1, 2**63, "7"])
def test_its_range_is_checked(walkthrough: Walkthrough, tmp_path: Path, wrong: object) -> None:
    given = tmp_path / "given.jsonl"
    given.write_text(json.dumps(LINE | {KEY: wrong}))
    reading = f"""if True:
        from pathlib import Path
        from aegish_dist.errors import DatasetError
        from aegish_dist.interchange.verdict_files import read_rows
        try:
            list(read_rows(Path({str(given)!r})))
        except DatasetError as error:
            print(error.field, error.problem)
    """
    assert walkthrough.run("-c", reading).startswith(f"{KEY} Expected ")
