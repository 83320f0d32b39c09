"""Documents that people read: from data to sections, from these to tables, Markdown, LaTeX, a page.

`documents` and `reference_json` are for programs and carry the unrounded numbers.
"""
