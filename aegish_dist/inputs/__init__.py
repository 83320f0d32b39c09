"""Opening files that others wrote: regular files only, and within limits of size and depth."""
