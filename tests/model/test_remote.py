"""Remote headers, against a local server that behaves well, oddly, slowly and badly."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cpubound import bounds
from cpubound.errors import ModelFileError, UsageError
from cpubound.model.gguf import read_gguf, remote
from cpubound.model.gguf.web import Budget
from cpubound.model.resolve import resolve_model

TOKENS = 200_000
WEIGHTS = 3 * 2**20


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_file(*, shard: int = 0, shards: int = 1) -> bytes:
    """Build a GGUF with a vocabulary of more than one block and a tensor of 3 MiB."""
    pairs: list[bytes] = [string("general.architecture") + struct.pack("<I", 8) + string("llama")]
    for key, value in (("block_count", 1), ("embedding_length", 1024), ("context_length", 64)):
        pairs.append(string(f"llama.{key}") + struct.pack("<II", 4, value))
    if shards > 1:
        for key, value in (("no", shard), ("count", shards), ("tensors.count", shards)):
            pairs.append(string(f"split.{key}") + struct.pack("<II", 4, value))
    if shard == 0:
        tokens = b"".join(string(f"token{i}") for i in range(TOKENS))
        array = struct.pack("<IIQ", 9, 8, TOKENS) + tokens
        pairs.append(string("tokenizer.ggml.tokens") + array)
    name = string("token_embd.weight" if shard == 0 else f"blk.0.ffn_up{shard}.weight")
    tensor = name + struct.pack("<IQQIQ", 2, 1024, WEIGHTS // 4096, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs) + tensor
    return head + bytes(-len(head) % 32) + bytes(WEIGHTS)


class Server:
    """A web server on this machine, with the manners that a test gives it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.status = 200
        self.ranges = True
        self.cut_after: int | None = None  # bytes of each answer, then the line is cut
        self.stall = threading.Event()
        self.stalls = False
        self.sent = 0
        self.requests: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(request.path)
        if request.path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[request.path])
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if self.status != 200 or request.path not in self.files:
            request.send_error(self.status if self.status != 200 else 404)
            return
        body = self.files[request.path]
        wanted = request.headers.get("Range")
        if self.ranges and wanted:
            first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            total, body = len(body), body[first : last + 1]
            request.send_response(206)
            end = first + len(body) - 1
            request.send_header("Content-Range", f"bytes {first}-{end}/{total}")
        else:
            request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.stalls:
            self.stall.wait(30)
        part = body if self.cut_after is None else body[: self.cut_after]
        try:
            for at in range(0, len(part), 2**16):
                request.wfile.write(part[at : at + 2**16])
                self.sent += len(part[at : at + 2**16])
        except OSError:
            pass  # the client has read enough

    def close(self) -> None:
        self.stall.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def content() -> bytes:
    return gguf_file()


def test_a_remote_header_is_what_the_local_file_has(
    server: Server, content: bytes, tmp_path: Path
) -> None:
    server.files["/models/tiny.gguf"] = content
    local = tmp_path / "tiny.gguf"
    local.write_bytes(content)
    spec = resolve_model(f"{server.address}/models/tiny.gguf")
    assert spec.tensors == read_gguf(local).tensors
    assert spec.vocabulary_size == TOKENS
    assert spec.file_bytes == len(content)


def test_only_the_header_is_fetched_in_few_requests(server: Server, content: bytes) -> None:
    server.files["/tiny.gguf"] = content
    remote.read_remote_gguf(f"{server.address}/tiny.gguf")
    header_bytes = len(content) - WEIGHTS
    assert header_bytes > 2 * remote.BLOCK_BYTES
    assert server.sent < header_bytes + 2 * remote.MAX_BLOCK_BYTES
    assert len(server.requests) <= 6


def test_redirects_are_followed_once_and_remembered(server: Server, content: bytes) -> None:
    server.files["/far/away.gguf"] = content
    server.redirects["/tiny.gguf"] = "/hop"
    server.redirects["/hop"] = f"{server.address}/far/away.gguf"
    assert remote.read_remote_gguf(f"{server.address}/tiny.gguf").vocabulary_size == TOKENS
    assert server.requests.count("/tiny.gguf") == 1


@pytest.mark.parametrize("target", ["/tiny.gguf", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_that_leads_nowhere_is_refused(server: Server, target: str) -> None:
    server.redirects["/tiny.gguf"] = target
    with pytest.raises(ModelFileError):
        remote.read_remote_gguf(f"{server.address}/tiny.gguf")


def test_a_server_without_ranges_is_read_from_the_start(server: Server, content: bytes) -> None:
    server.ranges = False
    server.files["/tiny.gguf"] = content
    spec = remote.read_remote_gguf(f"{server.address}/tiny.gguf")
    assert (spec.vocabulary_size, spec.file_bytes) == (TOKENS, len(content))
    assert server.requests == ["/tiny.gguf"]


def test_all_shards_are_read_whichever_is_given(server: Server) -> None:
    for shard in range(2):
        server.files[f"/big-0000{shard + 1}-of-00002.gguf"] = gguf_file(shard=shard, shards=2)
    spec = remote.read_remote_gguf(f"{server.address}/big-00002-of-00002.gguf")
    assert [tensor.shard for tensor in spec.tensors] == [0, 1]
    del server.files["/big-00001-of-00002.gguf"]
    with pytest.raises(ModelFileError, match="status 404"):
        remote.read_remote_gguf(f"{server.address}/big-00002-of-00002.gguf")


def test_a_hub_name_is_a_file_of_a_repository(
    server: Server, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/owner/some-GGUF/resolve/main/sub%20dir/tiny.gguf"] = content
    monkeypatch.setenv("HF_ENDPOINT", server.address + "/")
    spec = resolve_model("hf:owner/some-GGUF/sub dir/tiny.gguf")
    assert spec.vocabulary_size == TOKENS


@pytest.mark.parametrize(
    "name", ["hf:owner", "hf:owner/repo", "hf:owner/repo/x.bin", "hf:a/b/../../x.gguf", "https://"]
)
def test_what_names_no_file_is_refused_without_asking_the_web(name: str) -> None:
    with pytest.raises(UsageError):
        resolve_model(name)


def test_a_page_of_the_hub_means_its_file() -> None:
    page = "https://huggingface.co/o/r/blob/main/x.gguf?download=true#top"
    assert remote.web_address(page) == "https://huggingface.co/o/r/resolve/main/x.gguf"


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "refuses"), (403, "refuses"), (404, "no such file"), (416, "shorter"), (503, "503")],
)
def test_a_refusal_is_said_in_words(server: Server, status: int, message: str) -> None:
    server.status = status
    with pytest.raises(ModelFileError, match=message):
        remote.read_remote_gguf(f"{server.address}/tiny.gguf")


def test_a_connection_cut_again_and_again_still_gets_on(server: Server, content: bytes) -> None:
    server.files["/tiny.gguf"] = content
    server.cut_after = 700_000
    assert remote.read_remote_gguf(f"{server.address}/tiny.gguf").vocabulary_size == TOKENS


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_gives_nothing_is_given_up(
    server: Server, content: bytes, ranges: bool
) -> None:
    server.files["/tiny.gguf"] = content
    server.ranges = ranges
    server.cut_after = 0
    with pytest.raises(ModelFileError, match=r"cut|fetched"):
        remote.read_remote_gguf(f"{server.address}/tiny.gguf")


def test_a_silent_server_is_given_up(
    server: Server, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "REMOTE_SILENT_SECONDS", 0.1)
    server.files["/tiny.gguf"] = content
    server.stalls = True
    with pytest.raises(ModelFileError, match="no byte came"):
        remote.read_remote_gguf(f"{server.address}/tiny.gguf")


def test_a_slow_server_is_given_up_at_the_deadline(server: Server, content: bytes) -> None:
    server.files["/tiny.gguf"] = content
    ticks = iter(range(0, 10_000, 40))
    budget = Budget("tiny.gguf", clock=lambda: float(next(ticks)))
    with pytest.raises(ModelFileError, match="too slow"):
        remote.HttpSource(f"{server.address}/tiny.gguf", budget=budget)


def test_a_port_without_a_server_is_said_to_be_unreachable(server: Server) -> None:
    address = server.address
    server.close()
    with pytest.raises(ModelFileError, match="cannot be fetched"):
        remote.read_remote_gguf(f"{address}/tiny.gguf")


def test_a_web_page_is_no_model(server: Server) -> None:
    server.files["/tiny.gguf"] = b"<!DOCTYPE html><html>Sign in</html>"
    with pytest.raises(ModelFileError, match="web page"):
        remote.read_remote_gguf(f"{server.address}/tiny.gguf")


def test_a_file_cut_short_on_the_server_is_noticed(server: Server, content: bytes) -> None:
    server.files["/tiny.gguf"] = content[:-1000]
    with pytest.raises(ModelFileError, match="cut short by 1000"):
        remote.read_remote_gguf(f"{server.address}/tiny.gguf")
