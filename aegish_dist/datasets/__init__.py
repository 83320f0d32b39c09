"""Where samples come from and go to: the bundled sets, importers, label checks, export.

Everything here turns files into `core.sample.Dataset` and back. An importer reads a file into a
`Draft`, the label checks look at all of it, and only then is there a dataset: one wrong line and
nothing is kept. Commands are data and are never executed. Nothing here touches the database.
"""
