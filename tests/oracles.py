"""Libraries that are oracles, each imported where a test first uses it.

Every parallel worker reads the files of all tests, and these take ten seconds to import.
"""

from importlib import import_module
from typing import Any


class _Lazy:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        # While pytest collects, it looks whether each name of a module is a fixture of its own.
        if name.startswith(("_", "pytest")):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


anthropic: Any = _Lazy("anthropic")
anthropic_parse: Any = _Lazy("anthropic.lib._parse._transform")
genai: Any = _Lazy("google.genai")
linear_model: Any = _Lazy("sklearn.linear_model")
metrics: Any = _Lazy("sklearn.metrics")
openai: Any = _Lazy("openai")
openai_schema: Any = _Lazy("openai.lib._pydantic")
pandas: Any = _Lazy("pandas")
proportion: Any = _Lazy("statsmodels.stats.proportion")
regression: Any = _Lazy("statsmodels.regression.linear_model")
stats: Any = _Lazy("scipy.stats")
tables: Any = _Lazy("statsmodels.stats.contingency_tables")
multitest: Any = _Lazy("statsmodels.stats.multitest")
