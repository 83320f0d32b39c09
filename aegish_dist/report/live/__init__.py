"""A run while it goes on: `screen` fills a terminal with it, `plain` says it in one line."""
