"""The header of a GGUF file on the web, read by range requests."""

from __future__ import annotations

import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from types import TracebackType

from cpubound.errors import ModelFileError, UsageError
from cpubound.model.gguf.reader import read_gguf_from
from cpubound.model.values import ModelSpec

HUGGING_FACE = "https://huggingface.co"
BLOCK_BYTES = 2**20  # the first request; each later one doubles, up to:
MAX_BLOCK_BYTES = 2**23
MAX_STREAMED_BYTES = 2**27  # from a server that cannot answer a range
TIMEOUT_S = 15.0  # without a byte
DEADLINE_S = 60.0  # for one block
ATTEMPTS = 3
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+/[^?#]+\.gguf", re.ASCII)


def read_remote_gguf(address: str) -> ModelSpec:
    """Read the header of a GGUF model on the web; only the header's bytes are fetched.

    ``address`` is a web address or ``hf:OWNER/REPO/FILE``. Raises ``UsageError`` if it is
    neither, ``ModelFileError`` if the file cannot be fetched or used.
    """
    return read_gguf_from(web_address(address), HttpSource)


def web_address(text: str) -> str:
    """Return the web address that a MODEL argument means (``HF_ENDPOINT`` names a mirror)."""
    if text.startswith("hf:"):
        name = text.removeprefix("hf:")
        if not _HUB_NAME.fullmatch(name) or ".." in name.split("/"):
            raise UsageError(f"this names no file ({text}): write hf:OWNER/REPO/FILE.gguf")
        owner, repository, file = name.split("/", 2)
        host = os.environ.get("HF_ENDPOINT", HUGGING_FACE).rstrip("/")
        return f"{host}/{owner}/{repository}/resolve/main/{urllib.parse.quote(file)}"
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"this is no web address ({text}): write https://HOST/FILE.gguf")
    # The page of a file on the hub, and its download button.
    if parts.hostname == "huggingface.co":
        parts = parts._replace(path=parts.path.replace("/blob/", "/resolve/", 1), query="")
    return urllib.parse.urlunsplit(parts._replace(fragment=""))


def _opener() -> urllib.request.OpenerDirector:
    """Open http and https, and nothing that a redirect could name besides."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class HttpSource:
    """A remote file as a ``Source`` of ``gguf_header``; use it in a ``with`` block.

    Bytes come in blocks that grow, so that a large vocabulary costs few requests. A
    server without ranges is read from the start, as far as the header goes. Raises
    ``ModelFileError`` for every way in which the web can fail.
    """

    def __init__(self, address: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = address
        self.size: int | None = None
        self._clock = clock
        self._opener = _opener()
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
                problem = f"no byte came for {TIMEOUT_S:.0f} s"
                continue
            except urllib.error.HTTPError as error:
                error.close()
                raise self._refusal(error.code) from None
            except (urllib.error.URLError, HTTPException, OSError) as error:
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
        response: HTTPResponse = self._opener.open(request, timeout=TIMEOUT_S)
        try:
            if response.status == 206:
                return self._read_range(response, first, last)
            if first or response.status != 200:
                raise self._fail(f"the server answers a range with status {response.status}")
            declared = response.headers.get("Content-Length", "")
            self.size = int(declared) if declared.isdigit() else None
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
        if offset < self._start or offset + length > MAX_STREAMED_BYTES:
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
        deadline = self._clock() + DEADLINE_S
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
            if self._clock() > deadline:
                raise self._fail(
                    f"the connection is too slow, a block took over {DEADLINE_S:.0f} s"
                )
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
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return str(reason).splitlines()[0] if str(reason) else type(error).__name__
