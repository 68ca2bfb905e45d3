from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.measuring.plan import load_plan, probe_bytes, probe_layers
from cpubound.measuring.probes import plan_probes, probe_traffic
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.quant import quant_type
from cpubound.units import GIB, MIB


def test_the_standard_plan_measures_ten_quant_types() -> None:
    assert len(load_plan().types) == 10


def test_types_can_be_chosen_and_unknown_ones_are_refused() -> None:
    assert load_plan(types=("iq3_s",)).types == ("IQ3_S",)
    with pytest.raises(UsageError, match="Q9_9"):
        load_plan(types=("Q9_9",))


def test_every_probe_is_of_one_type_and_near_the_wanted_size() -> None:
    for probe in plan_probes(load_plan(), 128 * MIB):
        matrices = [t for t in probe.spec.tensors if len(t.shape) > 1 and t.type.name != "F32"]
        dense = {t.type.name for t in matrices if "_exps" not in t.name}
        experts = {t.type.name for t in matrices if "_exps" in t.name}
        assert experts <= {probe.type}
        assert dense == ({probe.type} if probe.type in load_plan().types else {"Q8_0"})
        if probe.name.startswith(("wide", "deep")):
            assert 128 * MIB < sum(t.n_bytes for t in matrices) < 360 * MIB


def test_no_probe_has_the_width_or_ffn_of_a_catalogue_model() -> None:
    probes = plan_probes(load_plan(), 128 * MIB)
    for name in catalog_names():
        model = catalog_entry(name).shape.hyper_parameters
        for probe in probes:
            for key in ("embedding_length", "feed_forward_length"):
                value = probe.spec.hyper_parameters[key]
                assert value == 0 or value != model.get(key), name


def test_probes_differ_in_depth_and_width_for_each_type() -> None:
    probes = [p for p in plan_probes(load_plan(), 128 * MIB) if p.type == "Q4_K"]
    widths = {p.spec.hyper_parameters["embedding_length"] for p in probes}
    depths = {p.spec.hyper_parameters["block_count"] for p in probes}
    assert len(widths) >= 2
    assert len(depths) >= 2


def test_deep_probes_have_an_odd_number_of_layers_as_no_usual_model_has() -> None:
    shape = load_plan().shapes[1]
    for target in range(20, 400, 7):
        layers = probe_layers(shape, "Q4_0", target * MIB)
        assert layers < 12 or layers % 2 == 1


def test_attention_probes_read_more_cache_than_weights() -> None:
    probes = [p for p in plan_probes(load_plan(), 128 * MIB) if p.name.startswith("kv")]
    for probe in probes:
        traffic = probe_traffic(probe, probe.cells[-1], 16)
        assert probe.cells[-1].prompt_tokens or (
            traffic.kv_read_bytes > 2 * traffic.weights_read_bytes
        )
    decoded = {p.spec.name.split("-")[0] for p in probes if not p.cells[0].prompt_tokens}
    assert decoded == {"kv64", "kv128", "kv256"}


def test_the_size_of_a_probe_follows_cache_and_memory() -> None:
    plan = load_plan()
    assert probe_bytes(plan, 24 * MIB, 16 * GIB) == 128 * MIB
    assert probe_bytes(plan, 256 * MIB, 64 * GIB) == GIB
    assert probe_bytes(plan, 256 * MIB, 2 * GIB) == 128 * MIB


def test_widths_are_multiples_of_every_block_of_the_plan() -> None:
    plan = load_plan()
    for shape in plan.shapes:
        for type_name in plan.types:
            block = quant_type(type_name).block_size
            assert shape.width % block == 0
            assert shape.ffn % block == 0


def test_a_type_measured_in_experts_only_has_dense_matrices_of_another() -> None:
    probes = plan_probes(load_plan(), 128 * MIB)
    probe = next(p for p in probes if p.type == "MXFP4")
    types = {tensor.type.name for tensor in probe.spec.tensors if "_exps" in tensor.name}
    others = {tensor.type.name for tensor in probe.spec.tensors if "_exps" not in tensor.name}
    assert types == {"MXFP4"}
    assert others == {"F32", "Q8_0"}


def test_types_that_are_asked_for_are_measured_in_every_shape() -> None:
    plan = load_plan(types=("Q5_0",))
    shapes = {p.name.split("-")[0] for p in plan_probes(plan, 128 * MIB)}
    assert {"wide", "deep", "narrow", "batch"} <= shapes
    assert "experts" not in shapes
