"""What people read: from data to sections, and from these to tables, Markdown, LaTeX and the page.

`documents` and `reference_json` are for programs and carry the unrounded numbers.
"""
