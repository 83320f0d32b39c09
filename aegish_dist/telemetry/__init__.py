"""Signals of a running fleet: measures for Prometheus, health, traces.

Measures are about the work of the fleet. What the models' answers are worth is in `core.metrics`.
"""
