"""The wire formats: the one table of the protocols in which models are called.

A format that goes over the network is one entry here and two modules of its name:
`providers/NAME.py` encodes requests and decodes answers, `simulator/NAME.py` speaks the server's
side. docs/how-to/add-a-wire-format.md adds one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


@dataclass(frozen=True, slots=True)
class HttpApi:
    """Facts of a wire format that more than one part of the program needs."""

    title: str
    rate_limit_headers: str | None
    """Pattern of the headers' names: `{of}` stands for `requests` or `tokens`, `{what}` for
    `limit`, `remaining` or `reset`. None when the providers send none."""
    output_limit_fields: tuple[str, ...]
    """Request fields that may bound the output; hosts of one format differ in the one they know."""
    simulated_root: str
    """Path of the API's root on the simulator; empty when the format's own paths name the
    version."""
    simulated_model: str
    """Persona of the simulator that `demo` asks in this format."""
    batches: bool = False
    """Whether it has batches: then `providers/batches/NAME.py` and `simulator/batches/NAME.py`
    speak them."""


class WireFormat(StrEnum):
    """The protocol a model is called in, with its entry in the table."""

    _value_: str
    http: HttpApi | None
    """None when no call leaves this process."""

    def __new__(cls, value: str, http: HttpApi | None) -> Self:
        """Keep the entry beside the name."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.http = http
        return member

    OPENAI = (
        "openai",
        HttpApi(
            title="OpenAI chat completions",
            rate_limit_headers="x-ratelimit-{what}-{of}",
            output_limit_fields=("max_completion_tokens", "max_tokens"),
            simulated_root="/v1",
            simulated_model="careful",
            batches=True,
        ),
    )
    """Also spoken by vLLM, Ollama, Groq, OpenRouter, ..."""
    ANTHROPIC = (
        "anthropic",
        HttpApi(
            title="Anthropic messages",
            rate_limit_headers="anthropic-ratelimit-{of}-{what}",
            output_limit_fields=("max_tokens",),
            simulated_root="",
            simulated_model="lenient",
            batches=True,
        ),
    )
    GOOGLE = (
        "google",
        HttpApi(
            title="Gemini generateContent",
            rate_limit_headers=None,
            output_limit_fields=("maxOutputTokens",),
            simulated_root="/v1beta",
            simulated_model="hasty",
            batches=True,
        ),
    )
    BASELINE = ("baseline", None)
    IMPORTED = ("imported", None)
    """Never called from here: its verdicts were imported."""


HTTP_FORMATS: dict[WireFormat, HttpApi] = {
    wire: wire.http for wire in WireFormat if wire.http is not None
}
"""The formats that go over the network, in the order of the table."""
