"""The pure core: records, parsing, scoring and statistics.

No I/O, no clock, no environment, no hidden randomness. Everything here is a function of its
arguments, so the same verdicts always give the same numbers.
"""
