"""The pure core: no I/O, no clock, no environment, no hidden randomness."""
