"""Loading of the Lua scripts that lie beside their modules.

Redis runs each script as one step: no other command can run in between.
"""

from importlib.resources import files


def load(package: str, name: str) -> str:
    """Return the text of a script.

    Args:
        package: The package that the script lies in.
        name: Its file name without `.lua`.
    """
    return files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8")
