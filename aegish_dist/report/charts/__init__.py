"""Plots of a report: Vega-Lite specifications, drawn without a browser."""
