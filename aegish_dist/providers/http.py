"""Classifiers behind an address: a JSON document of the operator's own form goes, any is answered.

All of the answer is the text of the completion: the mapping of the guard reads it.
"""

import json

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.outcome import StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import lenient
from aegish_dist.providers.contract import RequestTemplate, template
from aegish_dist.providers.lenient import Headers


def encode(
    spec: ModelSpec,
    _prompt: Prompt,
    _parameters: CallParameters,
) -> RequestTemplate:
    return template(spec.base_url, spec.request or {})


def request_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def decode(payload: object, headers: Headers) -> Completion:
    return Completion(
        text=json.dumps(payload, ensure_ascii=False),
        stop_reason="stop",
        stop_kind=StopKind.STOP,
        request_id=lenient.label(headers.get("x-request-id")),
    )
