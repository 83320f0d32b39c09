"""Documents that people read: from data to sections, from these to tables, Markdown, LaTeX, a page.

`documents` is for programs and carries the unrounded numbers.
"""
