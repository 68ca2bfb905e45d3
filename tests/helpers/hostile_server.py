"""A web server of which every path answers in another way that no server should."""

from __future__ import annotations

import gzip
import itertools
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator

Answer = Callable[[bytes, int, int], Iterable[bytes]]  # content, first and last byte asked for

PARTIAL = b"HTTP/1.1 206 P\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\n"


def _redirect(place: bytes) -> Answer:
    head = b"HTTP/1.1 302 F\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"
    return lambda *_: [head]


def _endless(start: bytes, again: bytes) -> Answer:
    return lambda *_: itertools.chain([start], itertools.repeat(again))


def _ranged(content: bytes, first: int, last: int, size: object) -> bytes:
    last = min(last, len(content) - 1)
    return PARTIAL + (
        f"Content-Range: bytes {first}-{last}/{size}\r\nContent-Length: {last - first + 1}\r\n\r\n"
    ).encode("latin-1")


def _one_byte(content: bytes, first: int, _last: int) -> list[bytes]:
    return [_ranged(content, first, first, len(content)) + content[first : first + 1]]


def _byte_by_byte(content: bytes, first: int, last: int) -> Iterator[bytes]:
    yield _ranged(content, first, last, len(content))
    yield from (content[at : at + 1] for at in range(first, last + 1))


def _growing(content: bytes, first: int, last: int) -> list[bytes]:
    return [_ranged(content, first, last, len(content) + first) + content[first : last + 1]]


def _huge(content: bytes, first: int, last: int) -> list[bytes]:
    return [_ranged(content, first, last, 2**63) + content[first : last + 1]]


def _lying(content: bytes, first: int, last: int) -> Iterator[bytes]:
    yield _ranged(content, first, last, len(content)).replace(b"Length: ", b"Length: 99999999")
    yield from itertools.repeat(bytes(2**16))


GGUF = b"GGUF\x03\0\0\0"
HUGE_VOCABULARY = (
    GGUF + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 8, 2**24)
)
ZIPPED = gzip.compress(bytes(10**8), 1)

ANSWERS: dict[str, Answer] = {
    "redirect-file": _redirect(b"file:///etc/passwd"),
    "redirect-ftp": _redirect(b"ftp://127.0.0.1/x.gguf"),
    "redirect-data": _redirect(b"data:,x"),
    "redirect-bracket": _redirect(b"http://[::1"),
    "redirect-port": _redirect(b"http://127.0.0.1:99999/x"),
    "redirect-credentials": _redirect(b"http://user:hunter2@127.0.0.1:x/x"),
    "redirect-characters": _redirect(b"http://127.0.0.1:1/\x1b[2J\xe9 x"),
    "redirect-nul": _redirect(b"http://127.0.0.1\0.evil:1/x"),
    "redirect-no-host": _redirect(b"http:///x"),
    "redirect-long": _redirect(b"http://" + b"a" * 60000 + b"/x"),
    "redirect-label": _redirect(b"http://" + b"a" * 70 + b".invalid/x"),
    "redirect-loop": _redirect(b"/redirect-loop"),
    "endless-headers": _endless(PARTIAL, b"X-A: " + b"b" * 1000 + b"\r\n"),
    "endless-header": _endless(PARTIAL + b"X: ", b"b" * 10000),
    "endless-status": _endless(b"HTTP/1.1 206 ", b"P"),
    "endless-1xx": _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless-body": _endless(WHOLE + b"\r\n" + GGUF + struct.pack("<QQ", 0, 30000), bytes(2**16)),
    "endless-vocabulary": _endless(
        WHOLE + b"\r\n" + HUGE_VOCABULARY, (struct.pack("<Q", 1) + b"x") * 2**12
    ),
    "no-range": _endless(WHOLE + b"Content-Length: 10000000000\r\n\r\n", bytes(2**16)),
    "one-byte-ranges": _one_byte,
    "byte-by-byte": _byte_by_byte,
    "range-5000-digits": lambda *_: [
        PARTIAL + b"Content-Range: bytes 0-9/" + b"9" * 5000 + b"\r\nContent-Length: 10\r\n\r\n"
    ],
    "range-superscript": lambda *_: [
        PARTIAL + b"Content-Range: bytes 0-\xb2/10\r\nContent-Length: 10\r\n\r\n" + b"x" * 10
    ],
    "length-superscript": lambda *_: [WHOLE + b"Content-Length: \xb2\r\n\r\n"],
    "length-5000-digits": lambda *_: [WHOLE + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"],
    "length-negative": lambda *_: [WHOLE + b"Content-Length: -5\r\n\r\n"],
    "length-zero": lambda *_: [WHOLE + b"Content-Length: 0\r\n\r\n"],
    "zipped": lambda *_: [
        WHOLE + f"Content-Encoding: gzip\r\nContent-Length: {len(ZIPPED)}\r\n\r\n".encode(),
        ZIPPED,
    ],
    "chunk-huge": lambda content, *_: [
        WHOLE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        content,
    ],
    "chunk-negative": lambda *_: [WHOLE + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc"],
    "chunk-extension": lambda *_: [
        WHOLE + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 100_000
    ],
    "garbage": lambda *_: [bytes(range(256)) * 4],
    "http-09": lambda *_: [b"GGUF"],
    "nothing": lambda *_: [],
    "status-999": lambda *_: [b"HTTP/1.1 999 X\x1b[2J\r\nContent-Length: 0\r\n\r\n"],
    "status-000": lambda *_: [b"HTTP/1.1 000 \x1b]0;x\x07\r\nContent-Length: 0\r\n\r\n"],
    "status-401": lambda *_: [
        b'HTTP/1.1 401 U\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n'
    ],
    "growing": _growing,
    "huge-size": _huge,
    "lying": _lying,
}


class HostileServer:
    """Answers on a port of this machine until it is closed."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def close(self) -> None:
        """End every connection and wait for their threads."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._open:
            connection.close()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._answer, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        try:
            while b"\r\n\r\n" not in request:
                part = connection.recv(65536)
                if not part:
                    return
                request += part
            self.requests += 1
            asked = re.search(rb"bytes=(\d+)-(\d+)", request)
            first, last = (int(asked[1]), int(asked[2])) if asked else (0, 0)
            path = re.split(rb"[ /?.]", request)[2].decode()
            for part in ANSWERS.get(path, ANSWERS["nothing"])(self._content, first, last):
                connection.sendall(part)
        except OSError:
            pass  # the client has had enough
        finally:
            connection.close()
