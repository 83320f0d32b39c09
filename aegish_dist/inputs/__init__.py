"""Reading what others wrote: files, documents and the values in them, without trust in any of it.

`documents` opens regular files within a limit of size and parses them, `checking`
turns parsed values into typed records. Whatever is wrong is an `InputError`, which says what and
where; the reader of each kind of file adds the file's name and raises its own error.
"""

import msgspec

REFUSALS = (msgspec.ValidationError, UnicodeEncodeError, RecursionError)
