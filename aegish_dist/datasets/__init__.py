"""Where samples come from and go to: the bundled sets, importers, label checks, export.

An importer reads a file into a `Draft`, the label checks look at all of it, and only then is there
a dataset. Commands are data and are never executed. Nothing here touches the database.
"""
