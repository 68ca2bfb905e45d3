"""Mutated headers: whatever a file holds, the reader answers or refuses, within its bounds.

The suite tries a bounded number of examples. A longer run is
``CPUBOUND_FUZZ_EXAMPLES=200000 python -m pytest tests/model/test_gguf_fuzz.py``.
"""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from gguf_bytes import (
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    GgufBytes,
    TensorInfo,
    array,
    pair,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cpubound.errors import CpuboundError
from cpubound.model.gguf import header as gguf_header
from cpubound.model.gguf import read_gguf
from cpubound.model.gguf.strings import skip_strings, skip_strings_in_python
from cpubound.model.traffic import compute_traffic
from cpubound.setting import Setting

LONG_RUN = "CPUBOUND_FUZZ_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("CPUBOUND_FUZZ_EXAMPLES", "300"))
ALLOWED_BYTES = 64 * 2**20

HEADER = GgufBytes(
    pairs=[
        pair("general.architecture", STRING, "llama"),
        pair("general.alignment", U32, 32),
        pair("llama.block_count", U32, 2),
        pair("llama.embedding_length", U32, 64),
        pair("llama.attention.head_count", U32, 4),
        array("llama.attention.head_count_kv", I32, [2, 0]),
        pair("llama.attention.sliding_window", U32, 32),
        array("llama.attention.sliding_window_pattern", BOOL, [True, False]),
        pair("llama.rope.freq_base", F32, 10000.0),
        pair("llama.expert_count", U32, 4),
        pair("llama.expert_used_count", U32, 2),
        pair("split.count", U16, 1),
        pair("llama.huge", U64, 2**40),
        array("tokenizer.ggml.tokens", STRING, ["<s>", "a", "bc", "x" * 300]),
        array("tokenizer.ggml.token_type", U8, [1] * 4),
    ],
    tensors=[
        TensorInfo(name="token_embd.weight", shape=(64, 4), offset=0),
        TensorInfo(name="blk.0.attn_q.weight", shape=(64, 64), type_=8, offset=1024),
        TensorInfo(name="blk.0.attn_k.weight", shape=(64, 32), type_=1, offset=5376),
        TensorInfo(name="blk.0.ffn_up_exps.weight", shape=(64, 8, 4), type_=0, offset=9472),
        TensorInfo(name="blk.1.ssm_in.weight", shape=(64, 2), type_=0, offset=17664),
    ],
    data_bytes=0,
).packed()
DATA_BYTES = 17664 + 512

INTERESTING = [0, 1, 0x7F, 0xFF, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A sound header with some bytes overwritten, removed, repeated or cut off."""
    content = bytearray(HEADER)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(content)))
        action = draw(st.sampled_from(["byte", "number", "cut", "remove", "insert", "copy"]))
        if action == "byte":
            content[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif action == "number":
            width = draw(st.sampled_from([4, 8]))
            number = draw(st.sampled_from(INTERESTING)) % 2 ** (8 * width)
            content[at : at + width] = number.to_bytes(width, "little")
        elif action == "cut":
            del content[at:]
        elif action == "remove":
            del content[at : at + draw(st.integers(1, 64))]
        elif action == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=64))
        else:
            content[at:at] = content[at : at + draw(st.integers(1, 256))]
    return bytes(content)


def answer_or_refusal(path: Path) -> object:
    """What reading gives: a spec, or the refusal's text. Anything else escapes and fails."""
    try:
        spec = read_gguf(path)
    except CpuboundError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        return message
    try:
        compute_traffic(spec, Setting(depth_tokens=100, flash_attn=False))
    except CpuboundError as error:
        assert "\n" not in str(error)
    return spec


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "mutated.gguf"


def test_the_file_that_is_mutated_is_sound(file: Path) -> None:
    file.write_bytes(HEADER + bytes(DATA_BYTES))
    assert not isinstance(answer_or_refusal(file), str)


@settings(
    max_examples=EXAMPLES,
    deadline=2000 if LONG_RUN else None,  # milliseconds: a hang counts where time is measured
    derandomize=not LONG_RUN,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(header=mutated(), data_bytes=st.sampled_from([DATA_BYTES, 0, 100, DATA_BYTES - 1]))
@example(header=b"GGUF\x03\0\0\0" + b"\xff" * 16, data_bytes=0)
@example(header=b"GGUF\x03\0\0\0" + bytes(16), data_bytes=0)
def test_a_mutated_header_is_answered_or_refused_within_bounds(
    file: Path, header: bytes, data_bytes: int
) -> None:
    file.write_bytes(header + bytes(data_bytes))
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gguf_header, "skip_strings", skip_strings_in_python)
            slow = answer_or_refusal(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < ALLOWED_BYTES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf_header, "skip_strings", skip_strings)
        assert answer_or_refusal(file) == slow


@settings(max_examples=EXAMPLES, deadline=None, derandomize=not LONG_RUN)
@given(window=st.binary(max_size=200), count=st.integers(0, 2**63), start=st.integers(0, 200))
def test_both_walks_over_strings_agree_on_any_bytes(window: bytes, count: int, start: int) -> None:
    assert skip_strings(window, start, count) == skip_strings_in_python(window, start, count)
