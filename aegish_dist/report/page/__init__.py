"""A report as one HTML file: works from disk, offline, and loads nothing from anywhere.

`page` puts the parts together, with the style sheet and the script of `assets`, whose hashes the
Content-Security-Policy of the file names; `tables` escapes what is foreign. Tables and drawings are
there without the script, which sorts, filters and opens details.
"""

from aegish_dist.report.page.page import render_page

__all__ = ["render_page"]
