"""OpenAI files: uploads of requests, and results to be read."""

import re
from dataclasses import dataclass, field
from typing import Any

from aiohttp import BodyPartReader, MultipartReader

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.batch_plan import Endpoint
from aegish_dist.simulator.batches.batch import StoredFile
from aegish_dist.simulator.batches.routes import (
    BatchCall,
    BatchReply,
    BatchRoute,
    number_in,
)
from aegish_dist.simulator.batches.store import page
from aegish_dist.simulator.dialect import ErrorAnswer

MAX_BYTES = 200 * 2**20


async def _upload(call: BatchCall) -> BatchReply | ErrorAnswer:
    form = _Form()
    try:
        reader = MultipartReader(call.exchange.request.headers, call.body)
        while isinstance(part := await reader.next(), BodyPartReader):
            await form.take(part)
    except (ValueError, AssertionError) as error:
        return _refusal(f"Could not parse the multipart form: {error}", "file")
    if form.is_too_large:
        return _refusal(f"File exceeds the maximum of {MAX_BYTES} bytes.", "file")
    purpose = form.fields.get("purpose", b"").decode("utf-8", "replace")
    if purpose != "batch":
        return _refusal(f"Invalid value for 'purpose': '{purpose}'.", "purpose")
    if "file" not in form.fields:
        return _refusal("Missing required parameter: 'file'.", "file")
    return BatchReply(_file_body(call.store.add_file(form.name, purpose, form.fields["file"])))


@dataclass(slots=True)
class _Form:
    """The fields of a form as they arrive."""

    fields: dict[str, bytes] = field(default_factory=dict)
    name: str = ""
    is_too_large: bool = False

    async def take(self, part: BodyPartReader) -> None:
        """Read one field; of one that is too large nothing is kept."""
        content = bytearray()
        while chunk := await part.read_chunk(2**16):
            self.is_too_large = self.is_too_large or len(content) + len(chunk) > MAX_BYTES
            if not self.is_too_large:
                content += chunk
        self.name = part.filename or self.name
        self.fields[part.name or ""] = bytes(content)


async def _list_files(call: BatchCall) -> BatchReply | ErrorAnswer:
    purpose = call.query.get("purpose")
    files = (file for file in call.store.files.values() if purpose in (None, file.purpose))
    after = call.query.get("after", "").removeprefix("file-")
    limit = number_in(call.query.get("limit"), 10_000, 10_000)
    found, more = page(files, limit, after=after)
    return BatchReply(list_body([_file_body(file) for file in found], more))


async def _describe_file(call: BatchCall) -> BatchReply | ErrorAnswer:
    file = call.store.files.get(call.found["id"])
    return _no_file(call) if file is None else BatchReply(_file_body(file))


async def _read_file(call: BatchCall) -> BatchReply | ErrorAnswer:
    file = call.store.files.get(call.found["id"])
    if file is None:
        return _no_file(call)
    return BatchReply(file.content, {"Content-Type": "application/octet-stream"})


async def _delete_file(call: BatchCall) -> BatchReply | ErrorAnswer:
    file = call.store.files.pop(call.found["id"], None)
    if file is None:
        return _no_file(call)
    return BatchReply({"id": f"file-{file.id}", "object": "file", "deleted": True})


def _file_body(file: StoredFile) -> dict[str, Any]:
    return {
        "id": f"file-{file.id}",
        "object": "file",
        "bytes": len(file.content),
        "created_at": int(file.created_s),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def list_body(entries: list[dict[str, Any]], more: bool) -> dict[str, Any]:
    """Return one page of a list."""
    ids = [entry["id"] for entry in entries] or [None]
    return {
        "object": "list",
        "data": entries,
        "first_id": ids[0],
        "last_id": ids[-1],
        "has_more": more,
    }


def _refusal(words: str, param: str | None = None) -> ErrorAnswer:
    return ErrorAnswer(ErrorClass.BAD_REQUEST, words, param)


def _no_file(call: BatchCall) -> ErrorAnswer:
    return ErrorAnswer(ErrorClass.NOT_FOUND, f"No such File object: file-{call.found['id']}")


_FILES = r"(?:/.*)?/v1/files"
_FILE = rf"{_FILES}/file-(?P<id>[^/]+)"
FILE_ROUTES = (
    BatchRoute("POST", re.compile(_FILES), Endpoint.UPLOAD, _upload),
    BatchRoute("GET", re.compile(_FILES), Endpoint.LIST, _list_files),
    BatchRoute("GET", re.compile(_FILE), Endpoint.POLL, _describe_file),
    BatchRoute("GET", re.compile(rf"{_FILE}/content"), Endpoint.RESULTS, _read_file),
    BatchRoute("DELETE", re.compile(_FILE), Endpoint.DELETE, _delete_file),
)
"""Paths of this dialect's files, whatever root precedes them."""
