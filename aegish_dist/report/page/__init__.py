"""A report as one HTML file: works from disk, offline, and loads nothing from anywhere.

`page` puts the parts together, `markup` escapes, `assets` has the style sheet and the script, whose
hashes the Content-Security-Policy of the file names. Tables and drawings are there without the
script, which sorts, filters and opens details.
"""

from aegish_dist.report.page.page import render_page

__all__ = ["render_page"]
