"""The header of a GGUF file on the web, read by range requests."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from functools import partial
from http.client import HTTPException, HTTPResponse
from types import TracebackType

from cpubound import bounds
from cpubound.errors import ModelFileError, UsageError
from cpubound.foreign import hide_credentials
from cpubound.model.gguf.reader import read_gguf_from
from cpubound.model.gguf.web import Budget, bounded_opener
from cpubound.model.values import ModelSpec

HUGGING_FACE = "https://huggingface.co"
BLOCK_BYTES = 2**18  # the first request; each later one doubles, up to:
MAX_BLOCK_BYTES = 2**23
ATTEMPTS = 3
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_LENGTH = re.compile(r"[0-9]{1,18}")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+/[^?#]+\.gguf", re.ASCII)


def read_remote_gguf(address: str) -> ModelSpec:
    """Read the header of a GGUF model on the web; only the header's bytes are fetched.

    ``address`` is a web address or ``hf:OWNER/REPO/FILE``. Raises ``UsageError`` if it is
    neither, ``ModelFileError`` if the file cannot be fetched or used.
    """
    address = web_address(address)
    return read_gguf_from(address, partial(HttpSource, budget=Budget(hide_credentials(address))))


def web_address(text: str) -> str:
    """Return the web address that a MODEL argument means (``HF_ENDPOINT`` names a mirror)."""
    if text.startswith("hf:"):
        name = text.removeprefix("hf:")
        if not _HUB_NAME.fullmatch(name) or ".." in name.split("/"):
            raise UsageError(f"this names no file ({text}): write hf:OWNER/REPO/FILE.gguf")
        owner, repository, file = name.split("/", 2)
        host = os.environ.get("HF_ENDPOINT", HUGGING_FACE).rstrip("/")
        place = f"{owner}/{repository}/resolve/main/{urllib.parse.quote(file)}"
        return urllib.parse.urlunsplit(_split(f"{host}/{place}"))
    parts = _split(text)
    # The page of a file on the hub, and its download button.
    if parts.hostname == "huggingface.co":
        parts = parts._replace(path=parts.path.replace("/blob/", "/resolve/", 1), query="")
    return urllib.parse.urlunsplit(parts._replace(fragment=""))


def _split(address: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(address)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise UsageError(f"this is no web address ({address}): write https://HOST/FILE.gguf")
    if "@" in parts.netloc:
        raise UsageError(
            "addresses with a user or a password in them are not fetched "
            f"({hide_credentials(address)}): download the file yourself"
        )
    return parts


class HttpSource:
    """A remote file as a ``Source`` of ``gguf_header``; use it in a ``with`` block.

    Bytes come in blocks that grow, so that a large vocabulary costs few requests. A
    server without ranges is read from the start, as far as the header goes. Raises
    ``ModelFileError`` for every way in which the web can fail.
    """

    def __init__(self, address: str, *, budget: Budget) -> None:
        self.name = hide_credentials(address)
        self.size: int | None = None
        self._budget = budget
        self._opener = bounded_opener(budget)
        self._address = address  # after redirects
        self._block = b""
        self._start = 0
        self._next_length = BLOCK_BYTES
        self._stream: HTTPResponse | None = None
        self._fetch(0, 1)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from ``offset``: fewer than ``length`` only at the end."""
        parts = []
        while length > 0 and (self.size is None or offset < self.size):
            at = offset - self._start
            if not 0 <= at < len(self._block):
                self._fetch(offset, length)
                at = offset - self._start
            part = self._block[at : at + length]
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def __enter__(self) -> HttpSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def _fail(
        self, what: str, what_to_do: str = "try again, or download the file"
    ) -> ModelFileError:
        return ModelFileError(f"{what} ({self.name}): {what_to_do}")

    def _fetch(self, offset: int, length: int) -> None:
        """Have the block that begins at ``offset``, as much of it as one request gives."""
        length = max(length, self._next_length)
        if self._stream is not None:
            self._read_stream(self._stream, offset, length)
            return
        last = offset + length - 1
        problem = "the connection was cut"
        for _ in range(ATTEMPTS):
            try:
                block = self._request(offset, last)
            except TimeoutError:
                problem = f"no byte came for {bounds.REMOTE_SILENT_SECONDS:.0f} s"
                continue
            except urllib.error.HTTPError as error:
                error.close()
                raise self._refusal(error.code) from None
            # ValueError and OverflowError: hosts and ports that a redirect names.
            except (HTTPException, OSError, ValueError, OverflowError) as error:
                problem = f"the file cannot be fetched, {_reason(error)}"
                continue
            if self._stream is not None:
                self._read_stream(self._stream, offset, length)
                return
            if block:
                self._block, self._start = block, offset
                self._next_length = min(2 * self._next_length, MAX_BLOCK_BYTES)
                return
        raise self._fail(problem)

    def _request(self, first: int, last: int) -> bytes:
        request = urllib.request.Request(
            self._address,
            headers={
                "Range": f"bytes={first}-{last}",
                "Accept-Encoding": "identity",
                "User-Agent": "cpubound",
            },
        )
        self._budget.count_request()
        response: HTTPResponse = self._opener.open(request)
        try:
            if response.status == 206:
                return self._read_range(response, first, last)
            if first or response.status != 200:
                raise self._fail(f"the server answers a range with status {response.status}")
            declared = response.headers.get("Content-Length", "")
            self.size = int(declared) if _LENGTH.fullmatch(declared) else None
            self._stream = response
            return b""
        finally:
            if self._stream is not response:
                response.close()

    def _read_range(self, response: HTTPResponse, first: int, last: int) -> bytes:
        answered = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if answered is None or int(answered[1]) != first or int(answered[2]) > last:
            raise self._fail("the server answers with another range than was asked for")
        size = int(answered[3])
        if self.size not in (None, size):
            raise self._fail(f"the file changed its size from {self.size} to {size} while read")
        self.size = size
        self._address = response.geturl()
        # What came before a cut is kept: the next request goes on from there.
        return self._read_some(response, int(answered[2]) - first + 1)

    def _read_stream(self, stream: HTTPResponse, offset: int, length: int) -> None:
        """Read on in a whole file until the block holds ``length`` bytes from ``offset``."""
        if offset < self._start:
            raise self._fail("the server cannot answer ranges, and this needs them")
        kept = self._block[offset - self._start :]
        position = self._start + len(self._block)
        try:
            while position < offset:
                skipped = self._read_some(stream, min(offset - position, MAX_BLOCK_BYTES))
                if not skipped:
                    break
                position += len(skipped)
            part = self._read_some(stream, length - len(kept))
        except (HTTPException, OSError) as error:
            raise self._fail(f"the file cannot be fetched, {_reason(error)}") from None
        at_end = self.size is not None and position + len(part) >= self.size
        if len(kept) + len(part) < length and not at_end:
            raise self._fail("the connection was cut")
        self._block, self._start = kept + part, offset

    def _read_some(self, response: HTTPResponse, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            try:
                part = response.read1(min(length, 2**16))
            except (HTTPException, OSError):
                if parts:
                    break
                raise
            if not part:
                break
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _refusal(self, status: int) -> ModelFileError:
        if status in (401, 403):
            return self._fail(f"the server refuses (status {status})", "download the file yourself")
        if status in (404, 410):
            return self._fail(f"there is no such file (status {status})", "check the address")
        if status == 416:
            return self._fail("the file is shorter than its header says", "try another file")
        return self._fail(f"the server answers with status {status}")


def _reason(error: Exception) -> str:
    """Say why in the system's words; what a server sent is not repeated."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    return "what the server answers is not HTTP" if reason is error else str(reason)
