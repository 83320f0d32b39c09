"""Fill in the placeholders of GTFOBins with what an intruder would really write.

The values are realistic and sensitive but do not give the label away. Order matters: the specific
before the general, so that nothing is left over.
"""

import re

_FIXED = (
    ("attacker.com", "10.0.0.1"),
    ("victim.com", "10.0.0.2"),
    ("/path/to/input-file", "/etc/shadow"),
    ("/path/to/file-input", "/etc/shadow"),
    ("/path/to/input-dir", "/etc/ssh"),
    ("/path/to/output-file", "/etc/cron.d/update"),
    ("/path/to/ouput-file", "/etc/cron.d/update"),  # so spelled in one of their files
    ("/path/to/output-dir/output-file", "/etc/cron.d/update"),
    ("/path/to/output-dir", "/etc/cron.d"),
    ("/path/to/command", "/usr/local/bin/service-check"),
    ("/path/to/lib.so", "/usr/lib/libutils.so"),
    ("/path/to/ld.so", "/lib64/ld-linux-x86-64.so.2"),
    ("/path/to/", "/tmp/"),  # noqa: S108 -- text, never opened
    ("path/to/input-file", "etc/shadow"),  # where a tree was copied to the working directory
    (r"c:\path\to\input", r"c:\etc\shadow"),
    (r"c:\path\to\output", r"c:\etc\cron.d\update"),
)

_PATTERNS = tuple(
    (re.compile(pattern), value)
    for pattern, value in (
        (r"\blib\.so\b", "/usr/lib/libutils.so"),
        (r"\binput-file\b", "shadow"),
        (r"\boutput-file\b", "update"),
        (r"(?<!\d)12345(?!\d)", "4444"),
        (r"\$\{?TF\b\}?", "/etc/sudoers.d/custom"),
        (r"\$\{?URL\b\}?", "http://10.0.0.1/update.tar.gz"),
        (r"\$\{?CONTAINER(?:_ID)?\b\}?", "web"),
        (r"\$\{?PID\b\}?", "1"),
        (
            r"(?<![A-Z])DATA(?![A-Z])",
            "Ki81ICogKiAqICogcm9vdCAvdXNyL2xvY2FsL2Jpbi9zZXJ2aWNlLWNoZWNrCg==",
        ),
        (r"(?<![A-Za-z])x{3,}(?![A-Za-z])", "backup"),
        (r"<(?P<tag>[a-z][a-z_ -]*)>(?!(?s:.*)</(?P=tag)>)", "backup"),  # not XML, which is closed
    )
)


def fill_in(code: str) -> str:
    """A GTFOBins example as a command that could be typed."""
    for placeholder, value in _FIXED:
        code = code.replace(placeholder, value)
    for pattern, value in _PATTERNS:
        code = pattern.sub(value, code)
    return code
