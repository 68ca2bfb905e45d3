"""cpubound.setting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cpubound.errors import UsageError
from cpubound.setting import Setting, read_setting, split_kv_type


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threads": 0}, r"thread count out of range \(0\)"),
        ({"depth_tokens": -1}, r"depth out of range \(-1\)"),
        ({"batch": 0}, r"batch out of range \(0\)"),
        ({"kv_type_k": "q4_K"}, "no cache of type q4_K"),
        ({"kv_type_v": "nonsense"}, "no cache of type nonsense"),
        ({"kv_type_v": "q8_0", "flash_attn": False}, "works only with flash-attention"),
        ({"allocated_context_tokens": 0}, "a context of 0 does not hold 0 tokens"),
        (
            {"allocated_context_tokens": 512, "depth_tokens": 512},
            "a context of 512 does not hold 512 tokens and a new one: give at least 513",
        ),
    ],
)
def test_what_llama_cpp_refuses_is_refused_where_a_setting_is_made(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        Setting(**fields)
    with pytest.raises(UsageError, match=words):
        msgspec.structs.replace(Setting(), **fields)


def test_a_cache_that_llama_cpp_takes_passes() -> None:
    assert Setting(kv_type_k="q8_0", kv_type_v="bf16", flash_attn=False).kv_types == (
        "q8_0",
        "bf16",
    )
    assert Setting(kv_type_k="q4_1", kv_type_v="iq4_nl").flash_attn


@pytest.mark.parametrize(
    ("depth", "asked", "allocated"),
    [(0, None, 256), (255, None, 256), (256, None, 512), (0, 1000, 1024), (300, 257, 512)],
)
def test_a_context_is_rounded_up_as_llama_cpp_does(
    depth: int, asked: int | None, allocated: int
) -> None:
    assert Setting(depth_tokens=depth, allocated_context_tokens=asked).n_ctx == allocated


@pytest.mark.parametrize(
    ("text", "types"),
    [("f16", ("f16", "f16")), ("Q8_0", ("q8_0", "q8_0")), ("q8_0:F16", ("q8_0", "f16"))],
)
def test_one_type_is_that_of_k_and_v(text: str, types: tuple[str, str]) -> None:
    assert split_kv_type(text) == types
    assert read_setting(kv_type=text).kv_types == types


@pytest.mark.parametrize("text", ["", ":", "f16:", ":f16"])
def test_half_a_type_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="one type or K:V"):
        read_setting(kv_type=text)


def test_a_setting_is_read_as_people_write_it() -> None:
    assert read_setting(depth=100, n_ctx=400, batch=2, kv_type="q8_0:F16", flash_attn=False) == (
        Setting(
            depth_tokens=100,
            allocated_context_tokens=400,
            batch=2,
            kv_type_k="q8_0",
            flash_attn=False,
        )
    )
