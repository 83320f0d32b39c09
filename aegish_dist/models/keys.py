"""Which keys are missing, before money is spent."""

from collections.abc import Mapping

from aegish_dist.core.model import ModelSpec


def missing_key(spec: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """Name the environment variable that a model needs and that is unset or blank.

    Returns:
        None when nothing is missing: the variable is set, or no key is needed.
    """
    variable = spec.key_variable
    return variable if variable and not environ.get(variable, "").strip() else None
