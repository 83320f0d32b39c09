"""The answer of a gate for a pipeline: one line, and JUnit XML."""

import re
from html import escape

from aegish_dist.core.gate import GateVerdict
from aegish_dist.core.printable import printable
from aegish_dist.core.words import counted
from aegish_dist.report.comparison import difference_in_words, in_points, side_name
from aegish_dist.report.comparison_data import ComparisonData, PairGate
from aegish_dist.report.numbers import format_count

_WORST_FIRST = (GateVerdict.WORSE, GateVerdict.INCONCLUSIVE, GateVerdict.SHIPS)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even as references."""


def worst(data: ComparisonData) -> GateVerdict:
    """Return the verdict that decides for all candidates together."""
    found = {gate.verdict for gate in data.gates}
    return next(verdict for verdict in _WORST_FIRST if verdict in found)


def gate_line(data: ComparisonData) -> str:
    """Return the answer in one line: the worst verdict, and why."""
    verdict = worst(data)
    deciding = [gate for gate in data.gates if gate.verdict is verdict]
    reasons = "; ".join(gate_in_words(data, gate) for gate in deciding)
    verdicts = [gate.verdict for gate in data.gates]
    others = [each for each in _WORST_FIRST if each in verdicts and each is not verdict]
    also = ", ".join(f"{verdicts.count(each)} {each.value}" for each in others)
    rest = f" (of {len(verdicts)} candidates also {also})" if others else ""
    return printable(f"{verdict.value}: {reasons}{rest}{_caveat(data)}")


def gate_in_words(data: ComparisonData, gate: PairGate) -> str:
    """Say how a candidate does, and what is missing to decide; foreign text."""
    found = gate.difference
    names = f"{side_name(data, gate.pair.b)} against {side_name(data, gate.pair.a)}"
    if found.difference is None:
        return f"{names}: {data.metric} is undefined on {counted(found.n, 'command')} of both"
    return (
        f"{names}: {data.metric} {difference_in_words(found)}, margin "
        f"{in_points(data.margin)}, {counted(found.n, 'command')}{_missing(gate)}"
    )


def _missing(gate: PairGate) -> str:
    if gate.verdict is not GateVerdict.INCONCLUSIVE:
        return ""
    if gate.missing == 0:
        # The variance seen would do; but with K clusters that differ no p is below 2^(1 - K).
        return ", too few clusters differ to decide"
    if gate.missing is None:
        return ", no number of commands is known to decide"
    return f", about {format_count(gate.missing)} more would decide"


def _caveat(data: ComparisonData) -> str:
    return f" [unlike runs: {'; '.join(data.unlike)}]" if data.unlike else ""


def junit_xml(data: ComparisonData) -> str:
    """Return JUnit XML with a test case for each candidate.

    One that is worse is a failure. One of which nothing can be said is an error: the test did not
    come to a result.
    """
    verdicts = [gate.verdict for gate in data.gates]
    numbers = (
        f'tests="{len(verdicts)}" failures="{verdicts.count(GateVerdict.WORSE)}" '
        f'errors="{verdicts.count(GateVerdict.INCONCLUSIVE)}"'
    )
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="aegish-dist compare" {numbers} time="0">',
            f'  <testsuite name="{_attribute(_suite(data))}" {numbers} skipped="0" time="0">',
            *(_case(data, gate) for gate in data.gates),
            "  </testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _suite(data: ComparisonData) -> str:
    return f"{data.metric} margin {data.margin:g}"


def _case(data: ComparisonData, gate: PairGate) -> str:
    message = gate_in_words(data, gate) + _caveat(data)
    name = f"{side_name(data, gate.pair.b)} against {side_name(data, gate.pair.a)}"
    head = f'    <testcase classname="aegish-dist.gate" name="{_attribute(name)}" time="0">'
    text, quoted = _text(message), _attribute(message)
    body = {
        GateVerdict.SHIPS: f"<system-out>{text}</system-out>",
        GateVerdict.WORSE: f'<failure message="{quoted}" type="worse">{text}</failure>',
        GateVerdict.INCONCLUSIVE: f'<error message="{quoted}" type="inconclusive">{text}</error>',
    }
    return f"{head}\n      {body[gate.verdict]}\n    </testcase>"


def _text(text: str) -> str:
    return escape(_NO_XML.sub("", printable(text)), quote=False)


def _attribute(text: str) -> str:
    return escape(_NO_XML.sub("", printable(text)))
