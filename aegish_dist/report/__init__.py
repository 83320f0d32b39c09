"""Documents for people: from data to sections, from these to tables, Markdown, LaTeX, a page."""
