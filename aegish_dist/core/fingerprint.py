"""Fingerprints of the parts of an opinion."""

import hashlib
import json


def fingerprint_of(content: object) -> str:
    """Return sixteen hexadecimal digits of the SHA-256 of JSON with sorted keys."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
