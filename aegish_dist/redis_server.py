"""Redis as the broker and the rate limiter both use it: its Lua scripts and its failures.

The failures named here end by themselves; any other error of Redis is a bug.
"""

from importlib.resources import files

from redis import exceptions

LOST = (OSError, exceptions.ConnectionError, exceptions.TimeoutError)

# States in which Redis takes no writes, by the code of the error.
_REFUSALS = {
    "MISCONF": "its disk takes no more",
    "OOM": "its memory is full",
    "READONLY": "it is a replica",
    "NOREPLICAS": "too few replicas follow it",
    "BUSY": "a script is running",
}


def load_script(package: str, name: str) -> str:
    return files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8")


def refusal_of(error: Exception) -> str | None:
    """Return why Redis takes no writes for now; None for an error of another kind."""
    code = next((code for code in _REFUSALS if code in str(error).split()), None)
    if isinstance(error, exceptions.OutOfMemoryError):  # redis-py takes these codes away
        code = "OOM"
    elif isinstance(error, exceptions.ReadOnlyError):
        code = "READONLY"
    return None if code is None else f"Redis takes no writes: {_REFUSALS[code]}"
