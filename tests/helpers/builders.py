"""Small values for tests: a machine, measurements, a profile, a model's traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpubound.cost.values import Prediction
from cpubound.engine.values import RunSettings
from cpubound.kernels.values import Measurement
from cpubound.machine.values import CoreKind, Machine, NumaNode
from cpubound.model.values import AttentionRead, ModelTraffic, WeightRead
from cpubound.profile.values import (
    EngineCalibration,
    MachineProfile,
    RateTable,
    SaturationPoint,
    judge_noise,
)
from cpubound.setting import Setting
from cpubound.validation.cells import Cell, Validation, summarize

GB = 10**9
# Fields of four cores with two hardware threads each.
SMT = {
    "threads_per_core": 2,
    "physical_cores": 4,
    "core_cpus": tuple((cpu, cpu + 4) for cpu in range(4)),
}


def build_machine(cpus: int = 4, **changes: Any) -> Machine:
    """A machine of ``cpus`` single-thread cores and 16 GB."""
    fields: dict[str, Any] = {
        "cpu_model": "Test CPU",
        "architecture": "x86_64",
        "operating_system": "Linux",
        "logical_cpus": tuple(range(cpus)),
        "online_cpus": tuple(range(cpus)),
        "allowed_cpus": tuple(range(cpus)),
        "physical_cores": cpus,
        "packages": 1,
        "threads_per_core": 1,
        "core_cpus": tuple((cpu,) for cpu in range(cpus)),
        "quota_cpus": None,
        "effective_cpus": cpus,
        "memory_bytes": 16 * GB,
        "memory_limit_bytes": None,
        "memory_available_bytes": 12 * GB,
        "transparent_huge_pages": "madvise",
    }
    return Machine(**{**fields, **changes})


def hybrid_machine() -> Machine:
    """Two performance cores of two threads each (CPUs 0-3), four efficiency cores (4-7)."""
    return build_machine(
        8,
        core_cpus=((0, 1), (2, 3), (4,), (5,), (6,), (7,)),
        core_kinds=(
            CoreKind(kind="performance", cpus=(0, 1, 2, 3), max_khz=5_000_000),
            CoreKind(kind="efficiency", cpus=(4, 5, 6, 7), max_khz=4_000_000),
        ),
    )


def two_nodes(memory_bytes: int | None = 64 * GB) -> Machine:
    nodes = tuple(
        NumaNode(id=n, cpus=tuple(range(4 * n, 4 * n + 4)), memory_bytes=memory_bytes)
        for n in range(2)
    )
    return build_machine(8, numa_nodes=nodes, memory_bytes=128 * GB)


def build_measurement(threads: int, bytes_per_s: float, **changes: Any) -> Measurement:
    """Three samples whose median is ``bytes_per_s``."""
    seconds = 128e6 / bytes_per_s
    fields: dict[str, Any] = {
        "kernel": "read",
        "isa": "avx2",
        "threads": threads,
        "cpus": tuple(range(threads)),
        "page_kind": "anon_4k",
        "working_set_bytes": 128_000_000,
        "bytes_per_pass": 128_000_000,
        "samples_s": (seconds * 0.99, seconds, seconds * 1.01),
    }
    return Measurement(**{**fields, **changes})


def build_engine(
    rates: Mapping[str, Mapping[int, float]],
    *,
    per_token_s: float = 0.0,
    per_product_s: float = 0.0,
    attention: Mapping[tuple[str, str, bool], float] | None = None,
    seconds: Mapping[str, float | Mapping[int, float]] | None = None,
    residual: float = 0.0,
) -> EngineCalibration:
    """An engine whose rates (type -> threads -> bytes/s) are given.

    ``attention`` gives KV bytes/s, whatever the query heads; ``seconds`` those of a unit of other
    keys of the cost model, at all thread counts or by thread count; ``residual`` that of every
    table.
    """
    more = dict(seconds or {})
    counts = {t for by_threads in rates.values() for t in by_threads}
    counts |= {t for value in more.values() if isinstance(value, Mapping) for t in value}
    tables = []
    for threads in sorted(counts):
        # Key -> seconds and relative error.
        found: dict[str, tuple[float, float]] = {
            f"bytes:{name}": (1 / by_threads[threads], 0.01)
            for name, by_threads in rates.items()
            if threads in by_threads
        }
        for (k, v, flash), rate in (attention or {}).items():
            setting = f"{k.upper()}:{v.upper()}:{'on' if flash else 'off'}"
            found[f"kv:{setting}:64"] = (1 / rate, 0.05)
            found[f"attention:{setting}:64:slim:near"] = (0.0, 0.0)
        found["product"] = (per_product_s, 0.0)
        found["token"] = (per_token_s, 0.0)
        for key, value in more.items():
            if not isinstance(value, Mapping):
                found[key] = (value, 0.02)
            elif threads in value:
                found[key] = (value[threads], 0.02)
        tables.append(build_table(threads, found, residuals=(residual,)))
    return EngineCalibration(name="fake", version="1", build="abc", tables=tuple(tables))


def build_table(
    threads: int, found: Mapping[str, tuple[float, float]], **changes: Any
) -> RateTable:
    """A rate table of seconds with a relative error each, independent of each other."""
    return RateTable(
        threads=threads,
        keys=tuple(found),
        seconds=tuple(seconds for seconds, _ in found.values()),
        relative_errors=tuple(error for _, error in found.values()),
        **changes,
    )


def build_profile(
    bandwidth: Mapping[int, float], engine: EngineCalibration | None = None, **changes: Any
) -> MachineProfile:
    """A quiet machine with this read bandwidth at each thread count."""
    fields: dict[str, Any] = {
        "machine": build_machine(max(bandwidth)),
        "bandwidth": tuple(build_measurement(t, rate) for t, rate in bandwidth.items()),
        "saturation": (SaturationPoint(kernel="read", threads=min(bandwidth)),),
        "noise": judge_noise((0.99, 1.0, 1.01), 10.0),
        "engine": engine,
        "created": "2026-11-30T12:00:00+00:00",
        "cpubound_version": "0.1.0",
    }
    return MachineProfile(**{**fields, **changes})


def take_setting(fields: Mapping[str, Any]) -> tuple[Setting, dict[str, Any]]:
    """Put the fields of a setting together; return it and the other fields."""
    names = set(Setting.__struct_fields__) & set(fields)
    rest = {name: value for name, value in fields.items() if name not in names}
    return Setting(**{name: fields[name] for name in names}), rest


def run_settings(model_path: object = "x.gguf", **fields: Any) -> RunSettings:
    """A run on one thread; fields of its setting are given beside its own."""
    setting, rest = take_setting(fields)
    return RunSettings(model_path=str(model_path), setting=setting, **rest)


def build_traffic(
    weights: Mapping[str, int],
    *,
    products: int = 10,
    kv_bytes: int = 0,
    **changes: Any,
) -> ModelTraffic:
    """A model that reads so many bytes of each type in ``products`` matrix products."""
    reads = tuple(
        WeightRead(
            role="ffn",
            kind="matmul",
            type=name,
            rows=1,
            columns=1,
            count=products // len(weights),
            n_bytes=n_bytes,
        )
        for name, n_bytes in weights.items()
    )
    attention = (
        AttentionRead(
            kind="full",
            layers=1,
            heads=8,
            kv_heads=2,
            head_dim_k=64,
            head_dim_v=64,
            cells=256,
            touched_cells=256,
            k_bytes=kv_bytes // 2,
            v_bytes=kv_bytes // 2,
        ),
    )
    setting, rest = take_setting(changes)
    fields: dict[str, Any] = {
        "model": "test-model",
        "architecture": "llama",
        "quant_label": "Q4_0",
        "parameters": 10**9,
        "active_parameters": 10**9,
        "file_bytes": sum(weights.values()),
        "setting": setting,
        "weights": reads,
        "attention": attention if kv_bytes else (),
        "kv_write_bytes": 0,
        "state_read_bytes": 0,
        "state_write_bytes": 0,
        "logits": 1000,
        "layers": 4,
        "resident_bytes": sum(weights.values()),
    }
    return ModelTraffic(**{**fields, **rest})


def build_validation(prediction: Prediction, *, engine: str) -> Validation:
    """One cell that was observed 2 % below its prediction."""
    cell = Cell(
        prediction=prediction,
        observed_tokens_per_s=prediction.tokens_per_s * 0.98,
        samples_s=(0.06,),
        relative_error=0.02,
        paired_error=None,
        inside=True,
        naive_tokens_per_s=prediction.ceiling_tokens_per_s,
        naive_error=0.5,
        noise_floor=None,
        reference_bytes_per_s=None,
    )
    return Validation(cells=(cell,), summary=summarize([cell]), engine=engine)


def standard_profile() -> MachineProfile:
    """A profile of two threads that predicts every common file type."""
    types = ("F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "Q3_K", "Q2_K", "IQ4_XS")
    return build_profile(
        {1: 20.0 * GB, 2: 30.0 * GB},
        build_engine(
            {name: {1: 9.0 * GB, 2: 17.0 * GB} for name in types},
            per_token_s=1e-4,
            per_product_s=1e-5,
            attention={("f16", "f16", True): 5.0 * GB, ("f16", "f16", False): 8.0 * GB},
        ),
        machine=build_machine(2),
    )
