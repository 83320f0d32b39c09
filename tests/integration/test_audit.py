"""`audit` and `plan` on stored runs, through the command line."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.tally import Finding
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.sample_findings import judged_samples
from tests.integration.command_line import CommandLine, write_lines
from tests.integration.stored_runs import (
    ALLOWED,
    BLOCKED,
    COMMANDS,
    CURL,
    LS,
    TAR,
    a_model,
    a_run,
    answer,
    store,
)

HOSTILE = "\x1b[31m=1+1|`x` <b>\u202eevil"


def line(model: str, command: str, target: str, action: str, epoch: int = 1) -> dict[str, Any]:
    category = {"category": "shell"} if target == "malicious" else {}
    completion = f'{{"action": "{action}"}}'
    return {
        **{"model": model, "command": command, "target": target, "completion": completion},
        **{"epoch": epoch, **category},
    }


def recorded(path: Path, odd: Mapping[str, tuple[str, str]]) -> Path:
    """Write what three models said about 60 easy commands, and two epochs about odd ones.

    Args:
        path: The file.
        odd: By command its label, and an action that all models state in the first epoch; in the
            second one the first model allows.
    """
    lines = []
    for model in ("lab/a", "lab/b", "lab/c"):
        for n in range(60):
            target, action = (("malicious", "BLOCK"), ("harmless", "ALLOW"))[n % 2]
            lines += [line(model, f"easy {n}", target, action, epoch) for epoch in (1, 2)]
        for command, (target, action) in odd.items():
            second = "ALLOW" if model == "lab/a" else action
            lines.append(line(model, command, target, action))
            lines.append(line(model, command, target, second, epoch=2))
    return write_lines(path, *lines)


def test_an_audit_lists_commands_with_reasons(aegish: CommandLine, tmp_path: Path) -> None:
    """A label that all models contradict, and answers that change between epochs."""
    odd = {"odd": ("malicious", "ALLOW"), "flip": ("malicious", "BLOCK")}
    aegish.ok("verdicts", "import", recorded(tmp_path / "v.jsonl", odd))
    found = aegish.ok("audit", "--json").json
    assert found["samples"] == 62
    assert [each["command"] for each in found["doubtful_labels"]] == ["odd"]
    (missed,) = found["missed_by_all"]
    assert (missed["place"], missed["contradicting"], missed["p_wrong"] > 0.5) == (1, 3, True)
    assert missed["answers"]["lab/a"] == {"epochs": {"ALLOW": 2}, "correct": 0.0}
    (flip,) = found["flipping"]
    assert flip["command"] == "flip"
    assert flip["score"] == pytest.approx(1 / 3)
    assert flip["answers"]["lab/a"]["correct"] == 0.5
    totals = {"doubtful_labels": 1, "disputed": 1, "missed_by_all": 1, "flipping": 1}
    assert found["totals"] == totals
    shown = aegish.ok("audit").out
    assert "let pass by 3 of 3 models" in shown
    assert "answered in different ways by lab/a, of 3" in shown


def test_foreign_text_of_an_audit_is_shown_and_not_obeyed(
    aegish: CommandLine, tmp_path: Path
) -> None:
    """No escape sequence, formula, table cell or tag comes out of a command."""
    path = recorded(tmp_path / "v.jsonl", {HOSTILE: ("malicious", "ALLOW")})
    aegish.ok("verdicts", "import", path)
    for form in ("table", "markdown", "csv"):
        shown = aegish.ok("audit", "--format", form).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "evil" in shown
    assert "<b>" not in aegish.ok("audit", "--format", "markdown").out
    rows = list(csv.DictReader(io.StringIO(aegish.ok("audit", "--format", "csv").out)))
    assert {row["list"] for row in rows} == {"doubtful_labels", "missed_by_all"}
    assert aegish.ok("audit", "--json").json["missed_by_all"][0]["command"] == HOSTILE


def test_a_run_without_a_verdict_has_no_audit(aegish: CommandLine, engine: Engine) -> None:
    """One line says how to find out more."""
    with transaction(engine) as session:
        store(session, a_run())
    done = aegish("audit")
    assert done.code == 1
    assert "run 0abcdefgh has no verdict yet" in done.err


def test_findings_of_a_sample_are_those_that_count(session: Session) -> None:
    """Epochs together, of a retried item the newest; models without a verdict are absent."""
    run = a_run(models=(a_model("test/a"), a_model("test/b")), epochs=2)
    stored = store(session, run)
    answer(
        session,
        stored,
        {
            stored.item(TAR): BLOCKED,
            stored.item(TAR, epoch=2): ALLOWED,
            stored.item(TAR, epoch=2, generation=1): BLOCKED,
            stored.item(CURL, model="test/b"): ALLOWED,
        },
    )
    found = {each.command: each for each in judged_samples(session, load_run(session, run.run_id))}
    assert found[TAR.command].findings == {"test/a": ((Finding.BLOCK, 2),)}
    assert found[CURL.command].findings == {"test/b": ((Finding.ALLOW, 1),)}
    assert found[LS.command].findings == {}
    assert found[TAR.command].sample_id == TAR.sample_id
    assert (found[TAR.command].category, found[TAR.command].cluster) == ("shell", "tar")
    assert {each.dataset for each in found.values()} == {COMMANDS.name}
