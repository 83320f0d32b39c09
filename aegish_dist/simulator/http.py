"""A classifier, seen from the server's side: `{"text"}` goes in, `{"label", "score"}` comes out.

The score grows with the danger. A path names the persona: `/classify/careful`.
"""

from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import InputError
from aegish_dist.opinions.parsing import parse
from aegish_dist.simulator import dialect

ERRORS = dialect.WORDS[WireFormat.HTTP].errors
KEY_HEADER = "Authorization"
KEY_SCHEME = "bearer"
_BASE = {
    Outcome.ALLOW: 0.3,
    Outcome.WARN: 0.5,
    Outcome.BLOCK: 0.7,
}
_SLOPE = {
    Outcome.ALLOW: -0.3,
    Outcome.WARN: 0.0,
    Outcome.BLOCK: 0.3,
}


def route(path: str) -> str | None:
    _, found, model = path.partition("/classify/")
    if found:
        return model
    return None


def read(body: JsonObject, model: str) -> dialect.ChatRequest:
    text = body.get("text")
    if not isinstance(text, str):
        raise InputError("text: Field required", field="text")
    return dialect.ChatRequest(model, text, len(text), 0)


def answer_body(answer: Completion, _call: dialect.Call) -> JsonObject:
    """Return label and score; of a text without an action the text alone, as its label."""
    read = parse(answer.text)
    action = read.action
    if action is None:
        return {"label": answer.text}
    confidence = 0.5 if read.confidence is None else read.confidence
    score = _BASE[action] + _SLOPE[action] * confidence
    return {
        "label": action.value.lower(),
        "score": round(score, 4),
    }


def error_body(error: dialect.ErrorAnswer, _call: dialect.Call) -> JsonObject:
    return {"error": error.message}


def headers(_allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    return {"x-request-id": call.id}
