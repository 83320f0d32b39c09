"""The mapping of a guard that is no chat model with our prompt, as a run records it.

A mapping stands in the catalog, as `output` of a provider or a model; each kind is a type of its
own. `opinions.mapping` reads answers by it. A path leads into a JSON answer: keys and list places
joined by dots, and `key=value` for the object of a list with that value.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from aegish_dist.errors import InputError

MOST_SUSPICION = 1e15

Action = Literal["ALLOW", "WARN", "BLOCK"]
Pattern = Annotated[str, Meta(min_length=1, max_length=500)]
Patterns = Annotated[tuple[tuple[Pattern, Action], ...], Meta(min_length=1, max_length=100)]
Number = Annotated[float, Meta(ge=-MOST_SUSPICION, le=MOST_SUSPICION)]
Path = Annotated[str, Meta(min_length=1)]
Words = tuple[str, ...]


class _Mapping(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    kw_only=True,
    tag_field="kind",
):
    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class _Explained(_Mapping, frozen=True):
    suspicion: str = ""  # path to a number that stands beside an action
    reason: str = ""  # path to a text


class ActionJson(_Explained, frozen=True, tag="action-json"):
    """The JSON that our prompts ask for, with a number beside the action."""

    unsafe: Words = ()  # tokens that mean danger, of which log probabilities are read
    safe: Words = ()

    def __post_init__(self) -> None:
        require_tokens(self.unsafe, self.safe)


class Hook(_Mapping, frozen=True, tag="hook"):
    """What the hook of an agent prints."""

    suspicion: str = ""


class Label(_Explained, frozen=True, kw_only=True, tag="label"):
    # Regular expressions, looked for in order in the stripped text, upper and lower case alike; a
    # group named `reason` is the reason. The catalog refuses those that RE2 does not know; those of
    # a stored run are never run.
    patterns: Patterns
    path: str = ""  # to the text; all of the answer when empty
    unsafe: Words = ()
    safe: Words = ()

    def __post_init__(self) -> None:
        require_tokens(self.unsafe, self.safe)


class _Thresholds(_Mapping, frozen=True):
    """Two numbers, of which one may be missing; the number read is the suspicion."""

    warn_from: Number | None = None  # numbers from here on are WARN
    block_from: Number | None = None
    reason: str = ""  # path to a text

    def __post_init__(self) -> None:
        given = [number for number in (self.warn_from, self.block_from) if number is not None]
        if not given:
            raise InputError("is missing, and so is warn_from", field="block_from")
        if given != sorted(given):
            raise InputError("must be at most block_from", field="warn_from")


class Score(_Thresholds, frozen=True, kw_only=True, tag="score"):
    path: Path  # to the number


class Logprobs(_Thresholds, frozen=True, kw_only=True, tag="tokens"):
    unsafe: Words
    safe: Words

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.unsafe:
            raise InputError("is missing", field="unsafe")
        require_tokens(self.unsafe, self.safe)


class LlamaGuard(_Explained, frozen=True, tag="llama-guard"):
    pass


class Qwen3Guard(_Explained, frozen=True, tag="qwen3guard"):
    pass


class ShieldGemma(_Explained, frozen=True, tag="shieldgemma"):
    pass


class GraniteGuardian(_Explained, frozen=True, tag="granite-guardian"):
    pass


Ready = LlamaGuard | Qwen3Guard | ShieldGemma | GraniteGuardian
Output = ActionJson | Hook | Label | Score | Logprobs | Ready
OUTPUT_KINDS: Mapping[str, type[Output]] = {
    kind.__struct_config__.tag: kind for kind in get_args(Output)
}


def with_kind(mapping: Any) -> Any:
    """Return a mapping of a file or row with its kind: `action-json` need not be named."""
    if isinstance(mapping, dict):
        return {"kind": ActionJson.__struct_config__.tag, **mapping}
    return mapping


def require_tokens(unsafe: Words, safe: Words) -> None:
    """Refuse tokens that are alike, and one side of them alone."""
    if bool(unsafe) != bool(safe):
        raise InputError("and 'unsafe' belong together", field="safe")
    tokens = [plain_token(token) for token in (*unsafe, *safe)]
    if "" in tokens:
        raise InputError("and 'safe' must name tokens", field="unsafe")
    if len(set(tokens)) < len(tokens):
        raise InputError("and 'unsafe' name a token twice", field="safe")


def plain_token(token: str) -> str:
    """Return a token as it is compared: without white space, in lower case."""
    return token.strip().lower()
