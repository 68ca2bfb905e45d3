"""Connections to web servers that may be slow, endless or hostile: bounded in all they take."""

from __future__ import annotations

import io
import socket
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any

from cpubound import bounds
from cpubound.errors import ModelFileError


class Budget:
    """What one model may take from the web: seconds, bytes and requests, all shards together.

    Its methods raise ``ModelFileError`` where nothing is left.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._deadline = clock() + bounds.REMOTE_SECONDS
        self._bytes = bounds.REMOTE_BYTES
        self._requests = bounds.REMOTE_REQUESTS

    def wait_s(self) -> float:
        """Return how long may be waited for the next byte."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise self._over(f"the connection is too slow: over {bounds.REMOTE_SECONDS:.0f} s")
        return min(left, bounds.REMOTE_SILENT_SECONDS)

    def count_bytes(self, n_bytes: int) -> None:
        """Take bytes that came, headers included."""
        self._bytes -= n_bytes
        if self._bytes < 0:
            raise self._over(f"the server sends over {bounds.REMOTE_BYTES // bounds.MIB} MiB")

    def count_request(self) -> None:
        """Take a request that is about to be made."""
        self._requests -= 1
        if self._requests < 0:
            raise self._over(f"the header took over {bounds.REMOTE_REQUESTS} requests")

    def _over(self, what: str) -> ModelFileError:
        return ModelFileError(f"{what} ({self._name}): download the file")


def bounded_opener(budget: Budget) -> urllib.request.OpenerDirector:
    """Open http and https within a budget, and nothing that a redirect could name besides."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        _HttpHandler(budget),
        _HttpsHandler(budget),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._connect = partial(_connection, HTTPConnection, budget)

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._connect, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._connect = partial(_connection, HTTPSConnection, budget)

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._connect, req)


def _connection(
    kind: type[HTTPConnection], budget: Budget, host: str, **_: object
) -> HTTPConnection:
    connection = kind(host, timeout=budget.wait_s())
    connection.response_class = partial(_BoundedResponse, budget)  # type: ignore[assignment]
    return connection


class _BoundedResponse(HTTPResponse):
    """An answer of which every byte is counted and waited for within the budget.

    Status lines, headers and answers that announce others are read through here too: a timeout
    between bytes alone would let them go on for ever.
    """

    def __init__(self, budget: Budget, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_CountedBytes(raw, sock, budget))


class _CountedBytes(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, budget: Budget) -> None:
        self._raw = raw
        self._sock = sock
        self._budget = budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._sock.settimeout(self._budget.wait_s())
        n_bytes: int | None = self._raw.readinto(buffer)
        self._budget.count_bytes(n_bytes or 0)
        return n_bytes

    def close(self) -> None:
        self._raw.close()
        super().close()
