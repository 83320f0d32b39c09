"""Options that several commands share, and the store that they open."""

import gc
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import click

from aegish_dist.cli.command import advanced, file_option, flag, in_plain_words
from aegish_dist.cli.printing import to_file
from aegish_dist.core.model import CallParameters
from aegish_dist.core.text import JsonObject, did_you_mean
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.logs import configure_logging
from aegish_dist.pipeline.store import Store
from aegish_dist.settings import load_settings

Function = TypeVar("Function", bound=Callable[..., Any])
AnyStore = TypeVar("AnyStore", bound=Store)


class Utf8(click.types.StringParamType):
    """Text that the store can hold; what a shell passes on may be any bytes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8", param, ctx)
        return text


class FiniteRange(click.FloatRange):
    """A range of numbers; `nan`, which no bound keeps out, and `inf` are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        # Shares are read off tables, where they stand in points.
        points = click.FLOAT(str(value).removesuffix("%"), param, ctx)
        if self.max == 1 and 1 < points <= 100:
            share = f"{points:g} % or points are {points / 100:g}"
            self.fail(f"{value} is not between 0 and 1: {share}", param, ctx)
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number

    def _describe_range(self) -> str:
        # Click writes 1e-06<=x<1, which few people read.
        return re.sub(r"\d\S*?(?=<|$)", _without_exponent, super()._describe_range())


def _without_exponent(number: re.Match[str]) -> str:
    return f"{Decimal(number[0]).normalize():f}"


class OneOf(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        listed = f"choose from {', '.join(self.choices)}"
        return f"'{value}' is not known: {did_you_mean(value, self.choices, listed)}"


class Duration(click.ParamType[float]):
    """A time such as `90s`, `30m`, `2h` or `1d`, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch("([0-9]{1,9})([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is no time: write 90s, 30m, 2h or 1d", param, ctx)
        number, unit = match.groups()
        seconds = float(number) * _SECONDS[unit]
        if seconds > 365 * _SECONDS["d"]:
            self.fail(f"{value!r} is more than a year", param, ctx)
        return seconds


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def cost_cap(
    name: str, text: str, cls: type[click.Option] = click.Option
) -> Callable[[Function], Function]:
    def usd(_: click.Context, __: click.Parameter, amount: float | None) -> Decimal | None:
        if amount is None:
            return None
        return Decimal(str(amount))

    return click.option(
        name, type=FiniteRange(1e-9, 1e12), callback=usd, metavar="USD", help=text, cls=cls
    )


MAX_INTEGER = 2**31 - 1


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Return what adds several options to a command, in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def read_into(
    name: str, read: Callable[..., object], *options: Callable[[Any], Any]
) -> Callable[[Function], Function]:
    """Return what adds options that a command gets as one value, by this name.

    The parameters of `read` name what it makes the value of: these options, or a value that other
    options were read into before.
    """
    parts = signature(read).parameters

    def add(function: Function) -> Function:
        @wraps(function)
        def with_value(**values: object) -> object:
            read_from = {part: values.pop(part) for part in parts}
            return function(**values, **{name: read(**read_from)})

        return together(*options)(with_value)  # type: ignore[return-value]

    return add


SHARE = FiniteRange(1e-6, 1, max_open=True)


def _format(form: str | None, as_json: bool) -> str | None:
    contradicts = as_json and form not in (None, "json")
    refuse_usage((contradicts, f"--json and --format {form} exclude each other"))
    return "json" if as_json else form


as_json = flag("--json", "as_json", help="Print one JSON document.")
# Adds `--json` to a command with a `--format`, which is the same as `--format json`: the command
# gets the format alone, None without either.
or_as_json = read_into("form", _format, as_json)

LIST_FORMATS = ("table", "json", "csv")
# Options of a list that is a table, or a document in a file.
in_a_form = together(
    click.option("--format", "form", type=OneOf(LIST_FORMATS), help="Default: table."),
    read_into("form", _format, flag("--json", "as_json", help="The same as `--format json`.")),
    to_file,
)

with_snapshot = click.option(
    "--snapshot",
    type=click.IntRange(1, MAX_INTEGER),
    metavar="S",
    help="A stored snapshot by number.",
)


wait = flag("--wait", help="On a fleet: return when the run has ended.")


def _take_run_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the keys of a run file the defaults of the command's options."""
    if path is None:
        return
    options = {}
    for option in context.command.params:
        if isinstance(option, click.Option) and option.expose_value:
            options[option.opts[0].removeprefix("--")] = option
    defaults = {}
    try:
        for key, value in parse_toml(read_text(path, 2**20)).items():
            if key not in options:
                keys = f"keys are long options of `{context.info_name}`"
                raise InputError(f"'{key}' is no key: {did_you_mean(key, options, keys)}")
            option = options[key]
            defaults[str(option.name)] = _as_typed(context, option, key, value)
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None
    context.default_map = defaults


def _as_typed(context: click.Context, option: click.Option, key: str, value: Any) -> object:
    """Return the value of a key as it would be typed on the command line."""
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, dict | list) for part in parts):
        raise InputError("it is a table: one value, or a list of them, is wanted", field=key)
    # An empty list names nothing, which is refused as an empty text is; it is not every name.
    texts = [str(part) for part in parts] or [""]
    typed: object = texts if option.multiple else ",".join(texts)
    try:
        # Checked here, where the key and the file are known.
        option.process_value(context, typed)
    except click.BadParameter as error:
        raise InputError(in_plain_words(error.message), field=key) from None
    return typed


run_file = file_option(
    "--run-file",
    is_eager=True,
    expose_value=False,
    callback=_take_run_file,
    help="Take options from a TOML file, such as `init` writes; those that are typed win.",
)


Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(names: Iterable[str] | Callable[[], Iterable[str]]) -> Completion:
    """Return what completes a name in a shell, the last one of a list separated by commas."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        # An error would be printed into what is being typed.
        with suppress(Exception):
            known = names() if callable(names) else names
            return [f"{before}{comma}{name}" for name in known if name.startswith(begun)]
        return []

    return complete


def runs_at_hand() -> Iterable[str]:
    from aegish_dist.pipeline.runs import names_at_hand  # noqa: PLC0415  brings the store

    return "latest", *names_at_hand(load_settings())


def guards_at_hand() -> Iterable[str]:
    from aegish_dist.pipeline.runs import names_at_hand  # noqa: PLC0415  brings the store

    return names_at_hand(load_settings(), guards=True)


def run_id(*, default: str | None = None, required: bool = True) -> Callable[[Function], Function]:
    # A default of None would count as a default, and nothing would be required.
    presence: JsonObject = {"required": required}
    if default is not None:
        presence = {"default": default}
    return click.option(
        "--run-id",
        type=Utf8(),
        metavar="R",
        help="A run's id, a unique prefix of it, its name, or `latest`.",
        shell_complete=completes(runs_at_hand),
        **presence,
    )


def _one_named(words: tuple[str, ...], run_id: str | None) -> str:
    named = (run_id, *words) if run_id else words
    refuse_usage((len(named) != 1, "name one run: --run-id R"))
    return named[0]


# Adds `--run-id R`, and R as an argument as well; the command gets it as `run`.
one_run = read_into(
    "run",
    _one_named,
    click.argument(
        "words", nargs=-1, type=Utf8(), metavar="[RUN]", shell_complete=completes(runs_at_hand)
    ),
    run_id(required=False),
)


def comma_list(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """Split values at commas, for options that may be repeated as well."""
    parts = [part.strip() for part in ",".join(values).split(",")]
    names = [part for part in parts if part]
    if values and not names:
        # A variable that a script forgot to set would else ask for everything, or pass every gate.
        advice = "name at least one" if parameter.required else "leave it out for the default"
        raise click.BadParameter(f"it is empty; {advice}")
    return names


def known_names(
    what: str, known: Iterable[str], everything: bool = False
) -> Callable[[click.Context, click.Parameter, Any], list[str]]:
    """Return a callback that reads `NAME[,NAME...]`, each one known, in the known order.

    `what` names their kind in a word; with `everything`, `all` stands for all of them.
    """
    names = list(known)

    def read(
        context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
    ) -> list[str]:
        chosen = comma_list(context, parameter, values)
        if everything and "all" in chosen:
            return names
        for name in chosen:
            if name not in names:
                hint = did_you_mean(name, names, f"choose from {', '.join(names)}")
                raise click.BadParameter(f"'{name}' is no {what}: {hint}")
        return [name for name in names if name in chosen]

    return read


def names(
    name: str,
    metavar: str,
    text: str,
    *,
    shell_complete: Completion | None = None,
    required: bool = False,
) -> Callable[[Function], Function]:
    """Return an option for a list of names, separated by commas or repeated."""
    return click.option(
        name,
        multiple=True,
        type=Utf8(),
        callback=comma_list,
        metavar=metavar,
        help=text,
        shell_complete=shell_complete,
        required=required,
    )


guards = partial(names, shell_complete=completes(guards_at_hand))
with_prompts = click.option(
    "--prompt",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    default=("guard",),
    metavar="NAME|FILE[,...]",
    help="A bundled prompt or a file with your own. With several prompts, each becomes an"
    " arm: MODEL#NAME.",
)


def _call_parameters(
    seed: int, temperature: float | None, max_output_tokens: int, time_limit: float
) -> CallParameters:
    return CallParameters(
        seed=seed,
        temperature=temperature,
        max_output_tokens=max_output_tokens,
        time_limit_s=time_limit,
    )


with_call_parameters = read_into(
    "parameters",
    _call_parameters,
    advanced(
        "--seed",
        type=click.IntRange(-(2**62), 2**62),
        default=42,
        help="Sent to providers that take one.",
    ),
    click.option("--temperature", type=FiniteRange(0, 2), help="Default: the provider's."),
    advanced(
        "--max-output-tokens",
        type=click.IntRange(1, MAX_INTEGER),
        default=4096,
        help="Room for the answer, hidden reasoning included.",
    ),
    click.option(
        "--time-limit",
        type=FiniteRange(0, 10**6, min_open=True),
        default=180.0,
        metavar="S",
        help="Seconds one call may take, waiting excluded.",
    ),
)


def limited(text: str, *names: str, default: int | None = None) -> Callable[[Function], Function]:
    """Return the option for how much of a list is shown; 0 stands for all of it."""
    return click.option(
        "--limit",
        *names,
        type=click.IntRange(0, MAX_INTEGER),
        default=default,
        metavar="N",
        help=text,
    )


def refuse_usage(*cases: tuple[object, str]) -> None:
    """Refuse options that do not go together: the first case that holds says why."""
    for holds, problem in cases:
        if holds:
            raise click.UsageError(problem)


def opened(store: AnyStore) -> AnyStore:
    """Return a store that is closed when the command ends; its settings say what is logged."""
    settings = store.settings
    configure_logging(settings.log_level or "WARNING", settings.log_format)
    click.get_current_context().with_resource(store)
    return store


def open_store() -> Store:
    return opened(Store(load_settings()))


def open_run(run_id: str) -> tuple[Store, str]:
    """Return the store of the environment, and the whole id of a run in it."""
    from aegish_dist.pipeline.runs import find_run  # noqa: PLC0415  brings the store

    store = open_store()
    return store, find_run(store.engine, run_id)


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the search for cycles: rows hold none, and it takes up to a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
