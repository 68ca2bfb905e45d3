"""A model against two roofs: from its tensors, and beside the plain numbers of the field."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_work import plain_work

from cpubound.errors import UsageError
from cpubound.model.resolve import resolve_model
from cpubound.model.traffic import compute_traffic
from cpubound.setting import Setting
from cpubound.theory.analysis import analyse, last_context_of, point_at
from cpubound.theory.budget import Roofs
from cpubound.theory.presets import find_preset
from cpubound.theory.source import ModelSource
from cpubound.theory.work import work_of_traffic

H100 = find_preset("h100-sxm").roofs()
CPU = Roofs(bytes_per_s=60e9, flops_per_s=1.2e12)


@pytest.fixture(scope="module")
def source_of() -> Callable[[str], ModelSource]:
    known: dict[str, ModelSource] = {}

    def find(name: str) -> ModelSource:
        return known.setdefault(name, ModelSource(resolve_model(name)))

    return find


Sources = Callable[[str], ModelSource]


@pytest.mark.parametrize(
    ("name", "file_gb", "kv_kib"),
    [
        ("llama-2-7b:BF16", 13.48, 512),
        ("llama-3.1-8b:BF16", 16.06, 128),
        ("qwen3-32b:BF16", 65.5, 256),
        ("llama-3.3-70b:BF16", 141.1, 320),
    ],
)
def test_models_of_the_field_have_the_sizes_of_the_plain_numbers(
    source_of: Sources, name: str, file_gb: float, kv_kib: int
) -> None:
    source = source_of(name)
    traffic = source.traffic(0)
    assert traffic.parameters * 2 / 1e9 == pytest.approx(file_gb, rel=0.002)
    step = source.work(1001).sequence_bytes - source.work(1000).sequence_bytes
    assert step == kv_kib * 1024


def test_a_step_reads_less_than_the_file_by_the_token_table(source_of: Sources) -> None:
    """The published 201.8 tok/s of Llama-3.1-8B counts the table, of which a token reads a row."""
    source = source_of("llama-3.1-8b:BF16")
    plain = plain_work(
        parameters=8.03e9, weight_bytes=16.06e9, kv_bytes_per_token=131072, context_tokens=4096
    )
    ours = point_at(source, H100, 1, 4096)
    assert 1 / plain.seconds(1, H100) == pytest.approx(201.8, abs=0.05)
    table_bytes = 128256 * 4096 * 2
    assert plain.n_bytes(1) - ours.n_bytes == pytest.approx(table_bytes, rel=0.002)
    assert ours.tokens_per_s == pytest.approx(215.5, abs=0.1)


def test_n_star_of_a_model_is_the_formula_with_attention_counted(source_of: Sources) -> None:
    source = source_of("qwen3-32b:BF16")
    work = source.work(0)
    balance = H100.machine_balance
    assert balance is not None
    kv = 262144
    expected = work.weight_flops / (balance * kv) / (1 - 8 / balance)
    assert last_context_of(source, H100) == pytest.approx(expected, abs=2)


def test_smaller_weights_leave_n_star_and_a_smaller_cache_doubles_it(source_of: Sources) -> None:
    roofline = analyse(source_of("qwen3-32b:BF16"), H100)
    plain, weights, cache, both = roofline.variants
    assert plain.last_context == weights.last_context
    assert plain.last_context is not None
    assert cache.last_context == both.last_context
    assert cache.last_context == pytest.approx(plain.last_context * 32 / 17, rel=0.03)
    halved, whole = weights.ridge_batches[0], plain.ridge_batches[0]
    assert halved is not None
    assert whole is not None
    assert halved / whole == pytest.approx(17 / 32, abs=0.001)
    assert both.tokens_per_s[-1] > max(weights.tokens_per_s[-1], cache.tokens_per_s[-1])


def test_the_work_of_a_batch_is_the_traffic_of_that_batch(source_of: Sources) -> None:
    for name in ("qwen3-30b-a3b:Q4_K_M", "gemma-3-27b:Q4_K_M", "falcon-h1-7b:Q4_0"):
        source = source_of(name)
        for batch in (1, 8, 64):
            traffic = compute_traffic(source.spec, Setting(depth_tokens=4096, batch=batch))
            exact = traffic.total_bytes - traffic.kv_read_bytes + traffic.kv_touched_bytes
            assert source.work(4096).n_bytes(batch) == pytest.approx(exact, rel=0.001)


def test_plain_numbers_and_a_models_traffic_agree_on_a_dense_model(source_of: Sources) -> None:
    source = source_of("qwen3-32b:BF16")
    ours = source.work(4096)
    plain = plain_work(
        parameters=ours.weight_flops / 2,
        weight_bytes=ours.weight_bytes,
        kv_bytes_per_token=262144,
        context_tokens=4097,
        attention_flops_per_token=8 * 262144,
    )
    for batch in (1, 64):
        assert ours.n_bytes(batch) == pytest.approx(plain.n_bytes(batch), rel=0.001)
        assert ours.flops(batch) == pytest.approx(plain.flops(batch), rel=0.001)


def test_bytes_of_a_weight_can_be_set_apart_from_the_file() -> None:
    spec = resolve_model("llama-3.1-8b:BF16")
    plain, one = ModelSource(spec), ModelSource(spec, bytes_per_weight=1)
    assert one.bits_per_weight == 8
    assert one.work(0).weight_flops == plain.work(0).weight_flops
    assert one.work(0).weight_bytes == pytest.approx(plain.work(0).weight_bytes / 2, rel=0.001)
    assert one.resident_weight_bytes() < plain.resident_weight_bytes()
    with pytest.raises(UsageError, match="weight"):
        ModelSource(spec, bytes_per_weight=0)


def test_a_mixture_reads_its_active_experts_alone_and_all_of_them_in_a_crowd(
    source_of: Sources,
) -> None:
    roofline = analyse(source_of("qwen3-30b-a3b:Q4_K_M"), H100, batches=(1, 64, 4096))
    assert roofline.experts == (128, 8)
    one, some, all_ = roofline.expert_reads
    assert one.experts == pytest.approx(8)
    assert some.experts == pytest.approx(125.9, abs=0.1)
    assert all_.experts == pytest.approx(128)
    assert all_.weight_bytes > 9 * one.weight_bytes


def test_a_model_without_attention_is_said_so_in_one_line(source_of: Sources) -> None:
    roofline = analyse(source_of("mamba-1.4b:Q8_0"), H100, memory_bytes=80e9)
    assert [note for note in roofline.notes if "no layer has attention" in note]
    assert len({budget.tokens_per_s for budget in roofline.budgets}) == 1
    assert all(variant.setting.kv_type_k == "f16" for variant in roofline.variants)
    assert all(o.name != "attention over the cache" for o in roofline.points[0].operators)


def test_a_context_past_training_is_a_note_not_an_error(source_of: Sources) -> None:
    roofline = analyse(source_of("llama-2-7b:BF16"), H100, contexts=(0, 4096, 8192))
    assert [note for note in roofline.notes if "4096" in note and "8192" in note]
    assert not analyse(source_of("llama-2-7b:BF16"), H100, contexts=(0, 4096)).notes


def test_a_batch_that_cannot_fit_is_marked_and_named(source_of: Sources) -> None:
    roofline = analyse(
        source_of("qwen3-32b:BF16"), H100, batches=(1, 64), contexts=(4096,), memory_bytes=80e9
    )
    assert [point.fits_in_memory for point in roofline.points] == [True, False]
    assert roofline.budgets[0].largest_batch == 12
    (note,) = roofline.notes
    assert "hold 12 sequences" in note
    assert "64" in note


def test_weights_that_cannot_fit_are_named(source_of: Sources) -> None:
    roofline = analyse(source_of("llama-3.3-70b:BF16"), H100, memory_bytes=80e9)
    (note,) = roofline.notes
    assert "weights alone" in note
    assert all(budget.largest_batch == 0 for budget in roofline.budgets)


def test_the_largest_batch_is_the_last_that_fits(source_of: Sources) -> None:
    source = source_of("llama-3.1-8b:BF16")
    most = analyse(source, H100, contexts=(4096,), memory_bytes=80e9).budgets[0].largest_batch
    assert most is not None
    for batch, fits in ((int(most), True), (int(most) + 1, False)):
        traffic = compute_traffic(source.spec, Setting(depth_tokens=4096, batch=batch))
        assert (traffic.resident_bytes <= 80e9) is fits


def test_without_peak_or_memory_what_needs_them_is_left_out(source_of: Sources) -> None:
    roofline = analyse(source_of("llama-3.1-8b:BF16"), Roofs(bytes_per_s=60e9))
    assert roofline.last_context is None
    assert {budget.ridge_batch for budget in roofline.budgets} == {None}
    assert {budget.largest_batch for budget in roofline.budgets} == {None}
    assert {point.roof for point in roofline.points} == {None}


def test_on_a_cpu_attention_binds_long_before_it_would_on_a_gpu(source_of: Sources) -> None:
    roofline = analyse(source_of("llama-3.1-8b:Q4_K_M"), CPU, batches=(1, 64), contexts=(0,))
    alone, crowd = roofline.points
    assert (alone.roof, crowd.roof) == ("memory", "compute")
    assert roofline.last_context is not None
    assert math.isfinite(roofline.last_context)


def test_a_verified_draft_reads_the_cache_once(source_of: Sources) -> None:
    work = source_of("qwen3-32b:BF16").work(32768)
    assert work.pass_seconds(5, H100) == pytest.approx(work.seconds(1, H100), rel=0.001)
    assert work.seconds(5, H100) > 1.3 * work.pass_seconds(5, H100)


def test_the_traffic_of_a_batch_is_no_work_of_one_sequence(source_of: Sources) -> None:
    with pytest.raises(ValueError, match="one sequence"):
        work_of_traffic(source_of("llama-3.1-8b:BF16").traffic(0, 2))


def test_impossible_settings_are_refused(source_of: Sources) -> None:
    source = source_of("llama-3.1-8b:BF16")
    for batches, contexts in (((0,), (0,)), ((1,), (-1,))):
        with pytest.raises(UsageError):
            analyse(source, H100, batches=batches, contexts=contexts)


@pytest.mark.parametrize(
    ("name", "rates", "n_star"),
    [
        ("llama-3.1-8b:BF16", (215.5, 173.5, 104.1), 392),
        ("qwen3-32b:BF16", (51.5, 46.2, 34.1), 848),
        ("llama-3.3-70b:BF16", (23.9, 22.4, 18.4), 1475),
    ],
)
def test_the_figures_from_tensors_in_the_docs_are_these(
    source_of: Sources, name: str, rates: tuple[float, ...], n_star: int
) -> None:
    source = source_of(name)
    contexts = (4096, 32768, 131072)
    found = [point_at(source, H100, 1, context).tokens_per_s for context in contexts]
    assert [round(rate, 1) for rate in found] == list(rates)
    assert last_context_of(source, H100) == n_star
    page = (Path(__file__).parents[2] / "docs" / "roofline.md").read_text(encoding="utf-8")
    for figure in (*rates, f"{n_star:,}"):
        assert f"| {figure} |" in page
