"""Servers that send too much, too slowly, or what is no HTTP: one clear error within the bounds."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from gguf_bytes import STRING, GgufBytes, array, pair
from hostile_server import ANSWERS, HostileServer
from odd import assert_shown

from cpubound import bounds
from cpubound.model.gguf import remote
from cpubound.model.gguf.web import Budget

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    pairs = [
        pair("general.architecture", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, ["token"] * 40_000),
    ]
    running = HostileServer(GgufBytes(pairs=pairs).packed())
    yield running
    running.close()


@pytest.fixture(autouse=True)
def a_second_for_each_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each wait for bytes take a second of the budget, without waiting."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    ticks = itertools.count()
    monkeypatch.setattr(remote, "Budget", partial(Budget, clock=lambda: float(next(ticks))))


@pytest.mark.parametrize("path", ANSWERS)
def test_a_hostile_answer_is_one_clear_error_within_the_bounds(
    server: HostileServer, invoke: Run, path: str
) -> None:
    before = server.requests
    tracemalloc.start()
    try:
        code, out, err = invoke("inspect", f"{server.address}/{path}.gguf?token=hunter2")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (code, out) == (3, "")
    assert err.startswith("cpubound: error: ")
    assert err.count("\n") == 1
    assert_shown(err)
    assert peak < bounds.REMOTE_BYTES
    assert server.requests - before <= bounds.REMOTE_REQUESTS


def test_bytes_and_requests_are_counted_over_all_shards() -> None:
    budget = Budget("x")
    for _ in range(bounds.REMOTE_REQUESTS):
        budget.count_request()
    with pytest.raises(remote.ModelFileError, match="requests"):
        budget.count_request()
    budget.count_bytes(bounds.REMOTE_BYTES)
    with pytest.raises(remote.ModelFileError, match="MiB"):
        budget.count_bytes(1)
