"""The Lua scripts of transport and limiter.

Redis runs each as one step; nothing can happen in between.
"""

from importlib.resources import files


def _read(name: str) -> str:
    return files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


TAKE = _read("take")
GIVE_BACK = _read("give_back")
OVERDUE = _read("overdue")
RENEW = _read("renew")
LIMITER = _read("limiter")
PROBE_NOW = _read("probe_now")
