"""Signals of a running fleet: measures for Prometheus, health, traces.

Measures are about the work of the fleet. What the models' answers are worth is in
`statistics.metrics`.
"""

from collections.abc import Mapping

Value = str | int | float | bool | list[str]
Attributes = Mapping[str, Value]

# Header of a message with the span that published it: W3C Trace Context, level 1.
TRACEPARENT = "traceparent"
