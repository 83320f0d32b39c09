"""Which LLM can be trusted to guard a shell, measured at any scale.

The pipeline, drawn once::

    submit ──> queue (one per run and model) ──> workers ──> providers (or simulator)
       │                                            │
       └── run, samples, prompt ──────────> db <── verdicts (facts, written once)
                                             │
                                             └──> aggregate ──> snapshot ──> report
                                                  (opinions and statistics: pure)

Facts are written once; opinions about them are recomputed by pure functions; everything else
moves data between those two.

Programs import `aegish_dist.api`, which is typed and described in `docs/reference/api.md`. This
package itself promises its version alone, and importing it loads nothing else.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
