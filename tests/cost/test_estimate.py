"""Estimates of machines that were never measured: from kin, a bandwidth, and rows of their own."""

from __future__ import annotations

import pytest

from cpubound.cost.estimate import decode_step, estimate, prompt_step
from cpubound.cost.kin_table import Kinship, read_kin_table
from cpubound.errors import UsageError
from cpubound.model.catalog import catalog_model
from cpubound.model.traffic import compute_traffic, prompt_steps
from cpubound.setting import Setting

ZEN5 = Kinship(
    name="EPYC of another day",
    micro_architecture="zen5",
    family="zen",
    architecture="x86_64",
    cluster_cores=8,
)
STRANGER = Kinship(name="?", micro_architecture="", family="", architecture="x86_64")


def step(model: str, threads: int = 8, file_type: str = "Q4_K_M", rate: float | None = None, **at):
    spec = catalog_model(model, file_type)
    traffic = compute_traffic(spec, Setting(**at))
    return decode_step(traffic, threads, "x86_64", rate)


def speed(kinship: Kinship, asked, *seen, **known) -> tuple[float, float, float]:
    (found,) = estimate("decode", kinship, 8, [asked], seen, **known)
    return 1 / found.seconds, 1 / found.high_s, 1 / found.low_s


def width(speeds: tuple[float, float, float]) -> float:
    return speeds[2] / speeds[1]


def test_a_cpu_never_seen_does_as_its_micro_architecture_and_a_stranger_is_less_certain() -> None:
    # Servers of three other Zen 5 names read 52 GB/s on eight threads: 13 tokens of 4.0 GB.
    known = speed(ZEN5, step("llama-2-7b"))
    assert known[0] == pytest.approx(12.7, rel=0.2)
    assert known[1] < known[0] < known[2]
    assert width(speed(STRANGER, step("llama-2-7b"))) > width(known)


def test_two_rows_of_a_machine_predict_a_third_model_on_it() -> None:
    rows = step("smollm2-135m", rate=150.0), step("llama-2-7b", rate=5.0)
    found = speed(ZEN5, step("phi-4"), *rows)
    # 8.8 GB where 4.0 GB take 0.2 s.
    assert found[0] == pytest.approx(5.0 * 4.0 / 8.8, rel=0.2)
    assert width(found) < width(speed(ZEN5, step("phi-4")))


def test_slower_memory_slows_what_memory_sets() -> None:
    slow = speed(STRANGER, step("llama-2-7b"), read_bytes_per_s=15e9)
    fast = speed(STRANGER, step("llama-2-7b"), read_bytes_per_s=150e9)
    assert slow[0] < 0.8 * fast[0]
    peak = speed(STRANGER, step("llama-2-7b"), peak_bytes_per_s=15e9 / 0.8)
    assert peak[0] == pytest.approx(slow[0], rel=0.1)


def test_another_file_type_is_less_certain_and_more_bytes_are_slower() -> None:
    usual, other = (
        speed(ZEN5, step("llama-2-7b")),
        speed(ZEN5, step("llama-2-7b", file_type="Q8_0")),
    )
    assert other[0] < usual[0]
    assert step("llama-2-7b", file_type="Q8_0").form_error > step("llama-2-7b").form_error


def test_a_deep_cache_costs_time_and_more_so_without_shared_heads() -> None:
    for model in ("llama-2-7b", "llama-3.1-8b"):
        assert speed(ZEN5, step(model, depth_tokens=4096))[0] < speed(ZEN5, step(model))[0]
    quantised = step("llama-2-7b", depth_tokens=4096, kv_type_k="q8_0", kv_type_v="q8_0")
    assert quantised.amounts[3] > step("llama-2-7b").amounts[3]


def test_a_row_of_a_prompt_predicts_another_model_s_prompt() -> None:
    small, large = (
        prompt_steps(catalog_model(name, "Q4_K_M"), 512, Setting())
        for name in ("gemma-2b", "llama-2-7b")
    )
    (found,) = estimate(
        "prompt", ZEN5, 8, [prompt_step(large, 8)], [prompt_step(small, 8, seconds=2.0)]
    )
    operations = prompt_step(large, 8).amounts[0] / prompt_step(small, 8).amounts[0]
    assert found.seconds == pytest.approx(2.0 * operations, rel=0.25)


def test_several_sequences_are_refused() -> None:
    with pytest.raises(UsageError, match="4 sequences"):
        step("llama-2-7b", batch=4)


def test_the_shipped_table_names_its_source_and_licence() -> None:
    table = read_kin_table()
    assert "Spare Cores" in table.source and table.license == "CC BY-SA 4.0"
    assert "calibrate servers" in table.command
    assert len(table.cpus) > 60
