"""Statistics of verdicts, pure: numbers and domain records in, estimates with intervals out.

Nothing here knows the database, files or the terminal.
"""
