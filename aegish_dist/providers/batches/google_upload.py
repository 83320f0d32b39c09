"""Files of the Gemini API: the resumable upload in one piece, the download, the removal."""

import json
from contextlib import suppress

import aiohttp
from yarl import URL

from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.batches.body import BatchBody
from aegish_dist.providers.batches.transfer import Transfer, checked_name

CONTENT_TYPE = "application/jsonl"


class GoogleFiles:
    """The files of one key."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        base = transfer.base_url
        self._upload = base.with_path(f"/upload{base.path}/files")
        self._download = f"/download{base.path}"

    async def upload(self, title: str, body: BatchBody) -> str:
        """Upload a file; return its name, `files/ID`.

        The provider names the address for the content; it has to be on the API's own host.

        Raises:
            ProviderError: There was no answer, or an error.
        """
        headers = {
            "X-Goog-Upload-Protocol": "resumable",
            "X-Goog-Upload-Command": "start",
            "X-Goog-Upload-Header-Content-Length": str(body.size),
            "X-Goog-Upload-Header-Content-Type": CONTENT_TYPE,
        }
        file = {"file": {"displayName": title}}
        start = aiohttp.BytesPayload(json.dumps(file).encode("ascii"))
        begun = await self._transfer.upload(self._upload, start, headers)
        address = _address(begun.headers.get("x-goog-upload-url"))
        content = {
            "Content-Type": CONTENT_TYPE,
            "X-Goog-Upload-Command": "upload, finalize",
            "X-Goog-Upload-Offset": "0",
        }
        answer = self._transfer.object(await self._transfer.upload(address, body, content))
        return checked_name(lenient.mapping(answer.get("file")).get("name"), "files/")

    def address(self, name: str) -> URL:
        """Return the address of a file's content."""
        base = self._transfer.base_url
        return base.with_path(f"{self._download}/{name}:download").with_query(alt="media")

    async def remove(self, name: str) -> None:
        """Remove a file if it can be."""
        with suppress(ProviderError):
            await self._transfer.call("DELETE", f"/{name}")


def _address(text: str | None) -> URL:
    try:
        return URL(text or "")
    except ValueError:
        raise lenient.malformed("the provider names no usable address for the upload") from None
