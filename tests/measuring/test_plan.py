from __future__ import annotations

import re

import msgspec
import pytest

from cpubound.cost.fit import Equation, condition_number, design_matrix, determined
from cpubound.errors import UsageError
from cpubound.measuring.plan import Plan, load_plan, probe_bytes, probe_layers
from cpubound.measuring.probes import ALONE, plan_probes, probe_grid, probe_terms, probe_traffic
from cpubound.model.catalog import catalog_entry, catalog_names
from cpubound.model.quant import QUANT_TYPES, quant_type
from cpubound.units import GIB, MIB

PLANS = ("quick", "standard", "thorough")
SIZE = 40 * MIB


def test_the_standard_plan_measures_ten_quant_types() -> None:
    assert len(load_plan().types) == 10


def test_types_can_be_chosen_and_unknown_ones_are_refused() -> None:
    assert load_plan(types=("iq3_s",)).types == ("IQ3_S",)
    with pytest.raises(UsageError, match="Q9_9"):
        load_plan(types=("Q9_9",))


def test_every_probe_is_of_one_type_and_those_of_weights_of_one_size() -> None:
    for probe in plan_probes(load_plan(), SIZE):
        matrices = [t for t in probe.spec.tensors if len(t.shape) > 1 and t.type.name != "F32"]
        dense = {t.type.name for t in matrices if "_exps" not in t.name}
        experts = {t.type.name for t in matrices if "_exps" in t.name}
        assert experts <= {probe.type}
        assert dense == ({probe.type} if probe.type in load_plan().types else {"Q8_0"})
        if probe.name.startswith(("wide", "deep")):
            size = sum(t.n_bytes for t in matrices)
            layers = probe.spec.hyper_parameters["block_count"]
            # An odd number of layers may be one more than it takes.
            assert size > SIZE
            assert layers == 1 or size * (layers - 2) / layers < SIZE


def test_no_probe_has_the_width_or_ffn_of_a_catalogue_model() -> None:
    probes = plan_probes(load_plan(), SIZE)
    for name in catalog_names():
        model = catalog_entry(name).shape.hyper_parameters
        for probe in probes:
            for key in ("embedding_length", "feed_forward_length"):
                value = probe.spec.hyper_parameters[key]
                assert value == 0 or value != model.get(key), name


def test_probes_differ_in_depth_and_width_for_each_type() -> None:
    probes = [p for p in plan_probes(load_plan(), SIZE) if p.type == "Q4_K"]
    widths = {p.spec.hyper_parameters["embedding_length"] for p in probes}
    depths = {p.spec.hyper_parameters["block_count"] for p in probes}
    assert len(widths) >= 2
    assert len(depths) >= 2


def test_deep_probes_have_an_odd_number_of_layers_as_no_usual_model_has() -> None:
    shape = load_plan().shapes[1]
    for target in range(20, 400, 7):
        layers = probe_layers(shape, "Q4_0", target * MIB)
        assert layers < 12 or layers % 2 == 1


def test_attention_probes_pass_more_of_the_cache_than_of_weights() -> None:
    """A pass for each query head, and one more that reads it."""
    probes = [p for p in plan_probes(load_plan(), SIZE) if p.name.startswith("kv")]
    for probe in probes:
        for cell in probe.cells:
            traffic = probe_traffic(probe, cell, 16)
            passed = sum((a.k_bytes + a.v_bytes) * (a.query_heads + 1) for a in traffic.attention)
            assert cell.prompt_tokens or passed > 2 * traffic.weights_read_bytes, probe.name
    decoded = {p.spec.name.split("-")[0] for p in probes if not p.cells[0].prompt_tokens}
    assert decoded == {"kv64", "kv128", "kv256"}


def test_the_size_of_a_probe_follows_the_memory() -> None:
    plan = load_plan()
    assert probe_bytes(plan, None) == probe_bytes(plan, 16 * GIB) == 40 * MIB
    assert probe_bytes(plan, GIB) == GIB // 200
    assert probe_bytes(plan, 1) == 4 * MIB


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("memory", [GIB, 4 * GIB, 64 * GIB])
def test_the_probes_of_weights_take_at_most_a_fifth_of_the_memory(name: str, memory: int) -> None:
    plan = load_plan(name)
    turns = [
        probe
        for probe in plan_probes(plan, probe_bytes(plan, memory), 32 * MIB)
        if probe.name.startswith(("wide", "deep", "narrow")) and probe.cells[0].takes_turns
    ]
    # What one layer of a shape takes is the least that a probe can have.
    layers = sum(probe.file_bytes for probe in turns if "-1x" in probe.name)
    assert sum(probe.file_bytes for probe in turns) - layers < memory / 5


def test_widths_are_multiples_of_every_block_of_the_plan() -> None:
    plan = load_plan()
    for shape in plan.shapes:
        for type_name in plan.types:
            block = quant_type(type_name).block_size
            assert shape.width % block == 0
            assert shape.ffn % block == 0


def test_a_type_measured_in_experts_only_has_dense_matrices_of_another() -> None:
    probes = plan_probes(load_plan(), SIZE)
    probe = next(p for p in probes if p.type == "MXFP4")
    types = {tensor.type.name for tensor in probe.spec.tensors if "_exps" in tensor.name}
    others = {tensor.type.name for tensor in probe.spec.tensors if "_exps" not in tensor.name}
    assert types == {"MXFP4"}
    assert others == {"F32", "Q8_0"}


def test_types_that_are_asked_for_are_measured_in_every_shape() -> None:
    plan = load_plan(types=("Q5_0",))
    shapes = {p.name.split("-")[0] for p in plan_probes(plan, SIZE)}
    assert {"wide", "deep", "narrow", "tiny", "long", "batch", "kv64", "kv128"} <= shapes
    assert "experts" not in shapes


def test_no_probe_is_of_a_type_that_was_not_asked_for() -> None:
    for name in PLANS:
        for probe in plan_probes(load_plan(name, types=("IQ4_XS", "Q4_K")), SIZE, 32 * MIB):
            types = {t.type.name for t in probe.spec.tensors} - {"F32"}
            assert types <= {"IQ4_XS", "Q4_K"}, probe.name


@pytest.mark.parametrize(
    ("cache", "sizes"),
    [(0, 0), (None, 0), (4 * MIB, 4), (32 * MIB, 4), (300 * MIB, 2), (GIB, 1), (4 * GIB, 0)],
)
def test_models_about_as_large_as_the_cache_are_decoded_alone(
    cache: int | None, sizes: int
) -> None:
    """From one layer up to sixteen times a probe of weights."""
    plan = load_plan()
    probes = plan_probes(plan, SIZE, cache)
    cached = [probe for probe in probes if probe.cached_bytes is not None]
    assert len(cached) == sizes
    assert {probe.cached_bytes for probe in cached} == set(
        probe_grid(load_plan(), probes).cached_bytes
    )
    for probe in cached:
        assert probe.cells == (ALONE,)
        assert probe.file_bytes == pytest.approx(probe.cached_bytes, rel=0.15)
        assert probe.file_bytes < 17 * SIZE


def test_only_probes_of_the_caches_sizes_have_its_keys() -> None:
    plan = load_plan()
    probes = plan_probes(plan, SIZE, 32 * MIB)
    grid = probe_grid(plan, probes)
    for probe in probes:
        for cell in probe.cells:
            keys = {k for k in probe_terms(probe, cell, 5, grid) if k.startswith("cached@")}
            expected = {f"cached@{probe.cached_bytes}"} if probe.cached_bytes else set()
            assert keys == expected, probe.name


# Whether the probes of a plan tell every rate: one equation for each cell, at what such things
# usually take.
USUAL_S = {
    "bytes": 1 / 30e9,
    "rows": 4e-9,
    "experts": 1 / 25e9,
    "attention": 1 / 17e9,
    "kv": 1 / 40e9,
    "prompt": 1 / 100e9,
    "state": 1 / 10e9,
    "product": 4e-6,
    "token": 5e-5,
    "cached": -1 / 100e9,
}
# Where a fit is too sure of itself by more than ten times this, it is refused.
MOST = 105.0
# Of integers and doubles no model is made.
TYPES = [q.name for q in QUANT_TYPES if not re.fullmatch(r"I\d+|F64", q.name)]
SUBSETS = [
    None,
    *((name,) for name in TYPES),
    ("IQ4_XS", "Q4_K"),
    ("Q4_K", "MXFP4"),
    ("Q8_0", "MXFP4"),
    ("IQ3_S", "TQ2_0"),
    ("F16", "F32"),
    ("Q8_0", "Q4_K"),
    ("F16", "Q8_0", "Q6_K", "Q4_0"),
]


def usual_seconds(terms: dict[str, float]) -> float:
    def price(key: str) -> float:
        kind, _, number = key.partition("@")
        unit = USUAL_S[kind.partition(":")[0]]
        # Beyond some four tokens computing takes longer than reading.
        return max(unit, int(number) / 120e9) if number and kind != "cached" else unit

    return sum(amount * price(key) for key, amount in terms.items())


def equations(
    plan: Plan, where: str, cache: int | None = 32 * MIB, memory: int = 24 * GIB
) -> list[Equation]:
    """Return what a plan measures at the most threads, at the fewest, or at counts between."""
    probes = plan_probes(plan, probe_bytes(plan, memory), cache)
    grid = probe_grid(plan, probes)
    found = []
    for probe in probes:
        for cell in probe.cells:
            n = cell.prompt_tokens
            is_rare = probe.is_batch and n not in plan.batch_tokens_fewest
            if (n is None) or where == "most" or (where == "fewest" and not is_rare):
                terms = probe_terms(probe, cell, 5, grid)
                found.append(Equation(terms, usual_seconds(terms)))
    return found


@pytest.mark.parametrize("where", ["most", "fewest", "between"])
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("types", SUBSETS, ids=lambda types: "+".join(types or ("all",)))
def test_every_plan_determines_its_rates_whatever_the_types(
    name: str, types: tuple[str, ...] | None, where: str
) -> None:
    rows = equations(load_plan(name, types), where)
    keys, design = design_matrix(rows)
    assert determined(rows) == (rows, ())
    # A model all of F32 moves 4 bytes for a weight: its rows hardly show beside them.
    assert condition_number(design) < (MOST if types != ("F32",) else 1.7 * MOST)
    assert len(rows) > len(keys)


@pytest.mark.parametrize("cache", [0, None, 4 * MIB, 300 * MIB, GIB])
@pytest.mark.parametrize("memory", [GIB, 24 * GIB])
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("types", [None, ("IQ4_XS", "Q4_K"), ("Q8_0",)])
def test_every_plan_determines_its_rates_whatever_the_cache_and_the_memory(
    name: str, types: tuple[str, ...] | None, memory: int, cache: int | None
) -> None:
    rows = equations(load_plan(name, types), "most", cache, memory)
    keys, design = design_matrix(rows)
    assert condition_number(design) < MOST
    assert len(rows) > len(keys)


def test_without_a_shape_of_short_rows_a_plan_would_not_determine_its_rates() -> None:
    """The check can fail: two shapes of one type leave bytes, rows and products open."""
    plan = msgspec.structs.replace(load_plan("quick", ("Q4_K",)), shape_names=("wide", "tiny"))
    left_out = determined(equations(plan, "between"))[1]
    assert left_out
