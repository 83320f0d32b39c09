"""Turning a report into text: the last step of the pipeline.

`sections` says what a report says, as plain data; `table`, `markdown`, `latex` and `page` draw it.
`csv`, `json` and `reference_json` are for programs and carry the unrounded numbers.
"""
