"""Reading what others wrote: files, documents and the values in them, without trust in any of it.

Whatever is wrong is an `InputError`; the reader of each kind of file names the file in its own
error.
"""
