"""A kept run of the laboratory, made of a hidden rate table, with known errors."""

from __future__ import annotations

import msgspec
from builders import GB, build_engine, build_machine, build_measurement, build_profile

from calibrate.kept_runs import KeptCell, KeptRun
from cpubound.cost.predict import predict_decode
from cpubound.profile.values import MachineProfile, ProbeRun

OWN = {"Q8_0": {1: 20.0 * GB, 2: 36.0 * GB}, "Q4_K": {1: 12.0 * GB, 2: 22.0 * GB}}
SECONDS = {
    "bytes:Q8_0": 1 / (18.0 * GB),
    "bytes:Q4_K": 1 / (10.0 * GB),
    "rows:Q8_0": 5e-9,
    "rows:Q4_K": 4e-9,
    "product": 3e-6,
    "token": 50e-6,
}


def kept_profile(identity: tuple[str, str] = ("26", "2"), slower: float = 1.0) -> MachineProfile:
    """Our kernels and llama.cpp on one and two threads of a CPU of this family and model."""
    family, model = identity
    table = {key: {1: s * slower, 2: s * slower * 0.6} for key, s in SECONDS.items()}
    own = tuple(
        build_measurement(threads, rate, kernel=f"gemv_{name.lower()}", isa="avx512vnni")
        for name, points in OWN.items()
        for threads, rate in points.items()
    )
    profile = build_profile(
        {1: 25.0 * GB, 2: 45.0 * GB},
        build_engine({}, seconds=table),
        machine=build_machine(
            2, cpu_vendor="AuthenticAMD", cpu_family=family, cpu_model_number=model
        ),
    )
    return msgspec.structs.replace(profile, bandwidth=(*profile.bandwidth, *own))


def kept_run(
    name: str = "run",
    *,
    errors: tuple[float, ...] = (0.0, 0.02, -0.03),
    set_name: str = "judged",
    identity: tuple[str, str] = ("26", "2"),
    slower: float = 1.0,
) -> KeptRun:
    """A run whose cells were observed so that predictions have these errors, at 1 and 2 threads."""
    profile = kept_profile(identity, slower)
    cells = []
    for threads in (1, 2):
        for depth, error in enumerate(errors):
            cell = KeptCell(
                set=set_name,
                model="smollm2-135m:Q8_0",
                threads=threads,
                depth_tokens=depth,
                kv_type_k="f16",
                kv_type_v="f16",
                flash_attn=True,
                tokens=32,
                observed_tokens_per_s=1.0,
                runs_s=(1.0,),
                noise_floor=0.01,
            )
            predicted = predict_decode(profile, cell.traffic(), threads).tokens_per_s
            observed = predicted / (1 + error)
            cells.append(
                msgspec.structs.replace(
                    cell, observed_tokens_per_s=observed, runs_s=(1 / observed,)
                )
            )
    return KeptRun(name=name, profile=profile, cells=tuple(cells))


def equations() -> tuple[ProbeRun, ...]:
    """Probes whose times follow from ``SECONDS`` exactly, at one thread."""
    rows = [
        {"bytes:Q8_0": 4e7, "rows:Q8_0": 1e4, "product": 10.0, "token": 1.0},
        {"bytes:Q8_0": 4e7, "rows:Q8_0": 6e4, "product": 40.0, "token": 1.0},
        {"bytes:Q4_K": 4e7, "rows:Q4_K": 1e4, "product": 10.0, "token": 1.0},
        {"bytes:Q4_K": 4e7, "rows:Q4_K": 6e4, "product": 40.0, "token": 1.0},
        {"bytes:Q8_0": 2e7, "rows:Q8_0": 8e4, "product": 400.0, "token": 1.0},
        {"bytes:Q8_0": 1e6, "rows:Q8_0": 4e3, "product": 8.0, "token": 1.0},
        {"bytes:Q4_K": 2e7, "rows:Q4_K": 8e4, "product": 300.0, "token": 1.0},
    ]
    return tuple(
        ProbeRun(
            probe=f"probe-{number}",
            type="Q8_0",
            threads=1,
            depth_tokens=0,
            kv_type_k="f16",
            kv_type_v="f16",
            flash_attn=True,
            terms=terms,
            samples_s=(sum(SECONDS[key] * n for key, n in terms.items()),) * 3,
            takes_turns=True,
        )
        for number, terms in enumerate(rows)
    )
