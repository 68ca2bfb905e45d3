"""Cells that were predicted and observed, and runs of probes, with times of the test's own."""

from __future__ import annotations

import msgspec
from builders import GB, build_engine, build_profile, build_traffic
from fakes import FakeRunner

from cpubound.cost.predict import predict_decode
from cpubound.profile.values import ProbeRun
from cpubound.validation.cells import CellToRun, Validation, run_cells

PROFILE = build_profile({1: 20.0 * GB, 2: 30.0 * GB}, build_engine({"Q4_0": {1: 1e10, 2: 2e10}}))


def cell(threads: int, path: str = "m.gguf") -> CellToRun:
    prediction = predict_decode(PROFILE, build_traffic({"Q4_0": 10**9}), threads)
    return CellToRun(
        prediction=prediction, model_path=path, bandwidth_bytes_per_s=30.0 * GB, tokens=10
    )


def observe(
    cells: list[CellToRun], runner: FakeRunner, reference: float | None = None
) -> Validation:
    return run_cells(
        cells,
        runner,
        None if reference is None else lambda threads: reference,
        seconds=0.0,
        open_bytes=10**12,
        progress=lambda stage, done: None,
    )


def probe(name: str, seconds: float, **fields: object) -> ProbeRun:
    run = ProbeRun(
        probe=name,
        type="Q4_0",
        threads=1,
        depth_tokens=0,
        kv_type_k="f16",
        kv_type_v="f16",
        flash_attn=True,
        terms={"bytes:Q4_0": 1e8, "product": 10.0, "token": 1.0},
        samples_s=(seconds,) * 3,
        reference_bytes_per_s=(),
    )
    return msgspec.structs.replace(run, **fields)
