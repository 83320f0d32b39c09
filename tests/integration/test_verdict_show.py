"""`verdicts show`: a sample found by what a user types, and all that is stored about it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import STORED, CallError, Completion, Timing, Verdict
from aegish_dist.opinions.parsing import judge
from aegish_dist.report.verdicts import TEXT_CHARS
from tests.integration.command_line import CommandLine
from tests.integration.samples import ALLOWED, BLOCKED, COMMANDS, CURL, DETAILED, LS, NOON, TAR
from tests.integration.stored_runs import answer, stored_run
from tests.recorded import document_of

LIMITED = CallError(1, ErrorClass.RATE_LIMIT, 429, 2.5, "slow down, sk-abcdefghijklmnop123", NOON)
RESET = CallError(2, ErrorClass.CONNECTION, None, None, "reset", NOON + timedelta(seconds=3))
WHOLE = replace(
    DETAILED,
    cost_usd=Decimal("0.00125"),
    timing=Timing(1.0, 2.0, 3.0, 4_000.0, 4_006.0),
    attempts=3,
    worker="w@h",
    created_at=NOON,
    call_errors=(LIMITED, RESET),
)
FAILED = Verdict(Outcome.API_ERROR, None, ErrorClass.RATE_LIMIT, attempts=1, call_errors=(LIMITED,))


@pytest.fixture
def reader(aegish: CommandLine, engine: Engine) -> CommandLine:
    """The command line on a run of two models; of one item there are two generations."""
    stored = stored_run(engine, models=("test/a", "test/b"), epochs=2)
    item = stored.item
    answer(engine, stored, {item(TAR, model="test/b", epoch=2): WHOLE})
    answer(engine, stored, {item(TAR): FAILED, item(LS): ALLOWED})
    answer(engine, stored, {item(TAR, generation=1): BLOCKED})
    return aegish


def test_everything_that_is_stored_is_shown(reader: CommandLine) -> None:
    document = reader.ok("verdicts show", TAR.sample_id, "--json").json
    shown = document_of("verdicts_shown.json")
    unknown = {field.name: None for field in STORED if field.nullable}
    shown["verdicts"] = [unknown | verdict for verdict in shown["verdicts"]]
    assert {name: document[name] for name in shown} == shown
    out = reader.ok("verdicts show", TAR.sample_id).out
    for word in (
        "test/b, epoch 2: ALLOW, wrong under aegish-5.3",
        "1,400 in",
        "0.00125 USD",
        "a-2026",
        "host.example",
        "req-1",
        "w@h",
        "service 4,000 ms",
        "3, 2 failed",
        "[key]",
        "0.75",
        "  suspicion   0.1\n",
        "attempt 1 failed at",
        "rate_limit 429, retry after 2.5 s",
        "replaced by a retry",
        "test/a, retry 1: BLOCK, correct",
    ):
        assert word in out


def test_a_wait_of_whole_seconds_is_a_number_like_any_other(
    aegish: CommandLine, engine: Engine
) -> None:
    """JSON of PostgreSQL has 2 for 2.0."""
    waited = replace(LIMITED, retry_after_s=2.0)
    stored_run(engine, {TAR: replace(BLOCKED, attempts=2, call_errors=(waited,))})
    assert '"retry_after_s": 2.0,' in aegish.ok("verdicts show", TAR.sample_id, "--json").out


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        (TAR.sample_id, TAR),
        (CURL.sample_id[:6], CURL),
        (LS.command, LS),
        ("TO-COMMAND", TAR),
        ("http://", CURL),
    ],
)
def test_a_sample_is_found(reader: CommandLine, name: str, sample: Sample) -> None:
    assert reader.ok("verdicts show", name, "--json").json["sample"]["command"] == sample.command


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("nothing", "has no sample 'nothing': `aegish-dist verdicts list` shows"),
        ("' '", "has no sample ' '"),
        ("%", "has no sample '%'"),
        ("a", "'a' is ambiguous: it could be "),
        (f"{TAR.sample_id} --models no/one", "has no model 'no/one': it has test/a, test/b"),
        (f"{TAR.sample_id} --dataset none", "has no dataset 'none': it has commands"),
    ],
)
def test_what_cannot_be_found(reader: CommandLine, options: str, problem: str) -> None:
    assert problem in reader.refused(f"verdicts show {options}")


def test_the_same_command_in_two_datasets(aegish: CommandLine, engine: Engine) -> None:
    other = Dataset("other", (TAR,))
    stored = stored_run(engine, datasets=(COMMANDS, other))
    answer(engine, stored, {stored.item(TAR, dataset="other"): BLOCKED})
    said = aegish.refused("verdicts show", TAR.command)
    assert f"{TAR.sample_id} of commands (" in said
    assert f"{TAR.sample_id} of other (" in said
    document = aegish.ok("verdicts show", TAR.command, "--dataset", "other", "--json").json
    assert document["sample"]["dataset"] == "other"
    assert len(document["verdicts"]) == 1


def test_hostile_texts(aegish: CommandLine, engine: Engine) -> None:
    word = "w" * 2**20
    completion = f'\x1b[2J\u202e{{"action": "BLOCK", "reason": "\x07\r"}}\ufffd\ufffd {word}'
    sample = Sample("echo \x1b[31m\nrm", TrueLabel.HARMLESS)
    error = CallError(1, ErrorClass.SERVER, 500, None, "\x1b]0;x\x07\n\n\nsecond", NOON)
    verdict = replace(judge(Completion(completion, "\x1b[0m")), call_errors=(error,))
    stored_run(engine, {sample: verdict}, datasets=(Dataset("commands", (sample,)),))
    done = aegish.ok("verdicts show echo")
    assert all(line.isprintable() for line in done.out.split("\n"))
    assert len(done.out) < 2 * TEXT_CHARS
    assert f"... {len(completion) - TEXT_CHARS:,} more characters; `--full` prints them" in done.out
    assert len(aegish.ok("verdicts show echo --full").out) > 2**20
    (shown,) = aegish.ok("verdicts show echo --json").json["verdicts"]
    assert shown["completion"] == completion
