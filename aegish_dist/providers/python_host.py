"""Asks an object of Python about commands: a program of mode `lines`, run by a supervisor.

Run as `python -I python_host.py MODULE:OBJECT PATH`, with the import path as JSON. What the object
prints goes to standard error; standard output is the protocol's.
"""

import inspect
import json
import os
import sys
from collections.abc import Awaitable, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

NO_OBJECT = 127  # the exit code of a shell that does not find a command
ACTIONS = ("ALLOW", "WARN", "BLOCK")


def main() -> None:
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.path[:] = json.loads(sys.argv[2])
    judge = _loaded(sys.argv[1])
    runner: Any = None
    for line in questions:
        question = json.loads(line)
        try:
            result = judge(question["command"])
            if inspect.isawaitable(result):
                import asyncio  # noqa: PLC0415  takes 50 ms, and few guards need it

                runner = runner or asyncio.Runner()
                result = runner.run(_awaited(result))
            answer = json.dumps(_document(result) | {"id": question["id"]}, allow_nan=False)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            answer = json.dumps({"error": words, "id": question["id"]})
        answers.write(answer.encode() + b"\n")
        answers.flush()


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _loaded(target: str) -> Any:
    """Return the callable that is named; an instance where a class is."""
    module, _, name = target.partition(":")
    try:
        found = attrgetter(name)(import_module(module))
        judge = found() if inspect.isclass(found) else found
        if not callable(judge):
            raise TypeError(f"{target} is not callable")
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(NO_OBJECT)

    return judge


def _document(result: Any) -> dict[str, Any]:
    """Return the answer as JSON: a text, an action, a number or a document."""
    if hasattr(result, "item"):  # a number of NumPy or PyTorch
        result = result.item()
    result = getattr(result, "value", result)
    match result:
        case str() if result.upper() in ACTIONS:
            return {"action": result.upper()}
        case str():
            return {"text": result}
        case bool():
            return {"unsafe": result}
        case int() | float():
            return {"score": result}
        case Mapping():
            return dict(result)

    raise TypeError(f"the object returned {type(result).__name__}")


if __name__ == "__main__":
    main()
