"""Gemini files: resumable uploads of requests, and downloads of results."""

import re
from typing import Any

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.batch_plan import Endpoint
from aegish_dist.simulator.batches.batch import StoredFile
from aegish_dist.simulator.batches.routes import (
    BatchCall,
    BatchReply,
    BatchRoute,
    json_object,
    number_in,
    read_body,
    timestamp,
)
from aegish_dist.simulator.batches.store import page
from aegish_dist.simulator.dialect import ErrorAnswer

MAX_FILE_BYTES = 2 * 2**30
_MAX_DESCRIPTION_BYTES = 2**20


async def _begin_upload(call: BatchCall) -> BatchReply | ErrorAnswer:
    if call.header("X-Goog-Upload-Command") != "start":
        return _refusal("Only resumable uploads are supported.")
    if number_in(call.header("X-Goog-Upload-Header-Content-Length"), 0, 2**62) > MAX_FILE_BYTES:
        return _refusal(f"Files may have {MAX_FILE_BYTES} bytes.")
    body = json_object(await read_body(call.body, _MAX_DESCRIPTION_BYTES)) or {}
    file = body.get("file")
    described = file if isinstance(file, dict) else {}
    upload = call.store.begin_upload(str(described.get("displayName", "")))
    url = f"{call.exchange.root}{call.exchange.request.path}?upload_id={upload}"
    headers = {"X-Goog-Upload-URL": url, "X-Goog-Upload-Status": "active"}
    return BatchReply({}, headers)


async def _upload(call: BatchCall) -> BatchReply | ErrorAnswer:
    """Take a part of a file; the last one says `finalize`."""
    if "upload_id" not in call.query:
        return await _begin_upload(call)
    upload = call.store.uploads.get(call.query["upload_id"])
    content = await read_body(call.body, MAX_FILE_BYTES)
    if upload is None or content is None:
        return _refusal("No such upload, or it is too large.")
    if call.header("X-Goog-Upload-Offset") != str(len(upload.content)):
        return _refusal("The offset of the upload is not where it ended.")
    upload.content += content
    if "finalize" not in call.header("X-Goog-Upload-Command"):
        return BatchReply({}, {"X-Goog-Upload-Status": "active"})
    del call.store.uploads[call.query["upload_id"]]
    file = call.store.add_file(upload.name, "UPLOADED", bytes(upload.content))
    return BatchReply({"file": _file_body(file, call)}, {"X-Goog-Upload-Status": "final"})


async def _list_files(call: BatchCall) -> BatchReply | ErrorAnswer:
    limit = number_in(call.query.get("pageSize"), 10, 100)
    found, more = page(call.store.files.values(), limit, after=call.query.get("pageToken", ""))
    body: dict[str, Any] = {"files": [_file_body(file, call) for file in found]}
    return BatchReply(body | ({"nextPageToken": found[-1].id} if more else {}))


async def _describe_file(call: BatchCall) -> BatchReply | ErrorAnswer:
    file = call.store.files.get(call.found["id"])
    return _no_file(call) if file is None else BatchReply(_file_body(file, call))


async def _read_file(call: BatchCall) -> BatchReply | ErrorAnswer:
    file = call.store.files.get(call.found["id"])
    if file is None:
        return _no_file(call)
    if file.purpose != "GENERATED":
        return _refusal("Only generated files can be downloaded.")
    return BatchReply(file.content, {"Content-Type": "application/octet-stream"})


async def _delete_file(call: BatchCall) -> BatchReply | ErrorAnswer:
    file = call.store.files.pop(call.found["id"], None)
    return _no_file(call) if file is None else BatchReply({})


def _file_body(file: StoredFile, call: BatchCall) -> dict[str, Any]:
    uri = f"{call.exchange.root}/v1beta/files/{file.id}"
    body = {
        "name": f"files/{file.id}",
        "displayName": file.name,
        "mimeType": "application/jsonl",
        "sizeBytes": str(len(file.content)),
        "createTime": timestamp(file.created_s),
        "updateTime": timestamp(file.created_s),
        "uri": uri,
        "state": "ACTIVE",
        "source": file.purpose,
    }
    downloadable = {"downloadUri": f"{uri}:download?alt=media"}
    return body | downloadable if file.purpose == "GENERATED" else body


def _refusal(words: str) -> ErrorAnswer:
    return ErrorAnswer(ErrorClass.BAD_REQUEST, words)


def _no_file(call: BatchCall) -> ErrorAnswer:
    return ErrorAnswer(ErrorClass.NOT_FOUND, f"File '{call.found['id']}' is not found.")


_FILES = r"(?:/.*)?/v1beta/files"
_FILE = rf"{_FILES}/(?P<id>[^/:]+)"
FILE_ROUTES = (
    BatchRoute("POST", re.compile(r"(?:/.*)?/upload/v1beta/files"), Endpoint.UPLOAD, _upload),
    BatchRoute("GET", re.compile(_FILES), Endpoint.LIST, _list_files),
    BatchRoute("GET", re.compile(_FILE), Endpoint.POLL, _describe_file),
    BatchRoute("GET", re.compile(rf"{_FILE}:download"), Endpoint.RESULTS, _read_file),
    BatchRoute("DELETE", re.compile(_FILE), Endpoint.DELETE, _delete_file),
)
"""Paths of this dialect's files, whatever root precedes them."""
