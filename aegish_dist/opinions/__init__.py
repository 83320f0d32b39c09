"""Opinions as files that users write and share: rule sets, targets and overlays, in TOML.

Each file has a name and a version. Reading gives records of `core.opinion`, or an `OpinionError`
that names file and key; writing gives files that read back as the same record.
"""
