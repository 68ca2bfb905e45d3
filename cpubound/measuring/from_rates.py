"""A profile of a machine that cpubound never ran on, from a few of its decode rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone

from cpubound import __version__
from cpubound.cost.kernel_priors import KernelPriors, isa_of_cpu, kernel_priors
from cpubound.cost.rate_fit import RateRow, RatesFit, fit_rates
from cpubound.engine.values import EngineIdentity
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.model.values import ModelTraffic
from cpubound.profile.values import (
    MAX_RELATIVE,
    AttentionRate,
    EngineCalibration,
    EngineCost,
    EngineRate,
    MachineProfile,
    ProbeRun,
    judge_noise,
)

# Rates do not depend on the length of a row or the size of a head here: rows cannot tell.
ANY_COLUMNS = 4096
ANY_HEAD_DIM = 128
# The law is tabled at these counts up to twice the largest that was seen.
THREAD_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_MIN_TABLED = 8
_PASS_BYTES = 2**28
_ARCHITECTURES = {"x86": "x86_64", "arm": "aarch64"}


def rate_row(traffic: ModelTraffic, threads: int, tokens_per_s: float) -> RateRow:
    """Put an observed rate beside what a step of the model moves."""
    weight_bytes: Counter[str] = Counter()
    for (name, _), n_bytes in traffic.matrices.items():
        weight_bytes[name] += n_bytes
    return RateRow(
        tokens_per_s=tokens_per_s,
        threads=threads,
        label=f"{traffic.model} {traffic.quant_label}",
        depth_tokens=traffic.depth_tokens,
        weight_bytes=dict(weight_bytes),
        kv_bytes=traffic.kv_touched_bytes if traffic.flash_attn else traffic.kv_read_bytes,
        kv_type_k=traffic.kv_type_k,
        kv_type_v=traffic.kv_type_v,
        flash_attn=traffic.flash_attn,
        state_bytes=traffic.state_read_bytes + traffic.state_write_bytes,
        products=traffic.matrix_products,
    )


def profile_from_rates(
    rows: Sequence[RateRow],
    *,
    cpu_model: str | None,
    engine: EngineIdentity,
    source: str,
    relative_samples: Sequence[float] = (),
    priors: KernelPriors | None = None,
) -> MachineProfile:
    """Fit the rows of one machine and lay the law out as a profile.

    Parameters
    ----------
    rows : of one machine and one build of the engine.
    source : where they are from, as predictions will say.
    relative_samples : single repetitions over the mean of theirs: how noisy the machine was.
    priors : by default those of the instruction set that the CPU's name tells.

    Raises
    ------
    ValueError : no rows.
    """
    isa = isa_of_cpu(cpu_model)
    fit = fit_rates(rows, priors or kernel_priors(isa))
    counts = _table_counts([row.threads for row in rows])
    most = max(row.threads for row in rows)
    plural = "" if len(rows) == 1 else "s"
    return MachineProfile(
        machine=_machine(cpu_model, _ARCHITECTURES.get(isa or "", "unknown"), most),
        bandwidth=tuple(_read_measurement(fit, threads) for threads in counts),
        saturation=(),
        noise=judge_noise(tuple(relative_samples) or (1.0,), 0.0),
        engine=EngineCalibration(
            name=engine.name,
            version=engine.version,
            build=engine.build,
            features=engine.features,
            rates=tuple(
                rate
                for name in fit.types
                for threads in counts
                for rate in _weight_rates(fit, name, threads)
            ),
            costs=tuple(
                EngineCost(
                    threads=threads,
                    seconds_per_token=0.0,
                    seconds_per_product=fit.product_seconds(threads).value,
                )
                for threads in counts
            ),
            attention=tuple(
                _attention_rate(fit, key, threads)
                for key in fit.attention_keys
                for threads in counts
            ),
            residual=min(fit.spread, MAX_RELATIVE),
            probes=tuple(_probe_run(row) for row in rows),
        ),
        warnings=(
            "rates of types, threads and settings that no row shows are those of other machines",
        ),
        fitted_to=f"{len(rows)} row{plural} of {source}",
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        cpubound_version=__version__,
    )


def _probe_run(row: RateRow) -> ProbeRun:
    """Keep a row as what was observed: its evidence travels with the profile."""
    return ProbeRun(
        probe=row.label,
        type=max(row.weight_bytes, key=lambda name: row.weight_bytes[name], default="unknown"),
        threads=row.threads,
        depth_tokens=row.depth_tokens,
        kv_type_k=row.kv_type_k,
        kv_type_v=row.kv_type_v,
        flash_attn=row.flash_attn,
        matrices=tuple((name, ANY_COLUMNS, n_bytes) for name, n_bytes in row.weight_bytes.items()),
        kv_bytes=row.kv_bytes,
        products=row.products,
        samples_s=(1 / row.tokens_per_s,),
        reference_bytes_per_s=(),
    )


def _table_counts(seen: Sequence[int]) -> list[int]:
    limit = max(_MIN_TABLED, 2 * max(seen))
    return sorted({*(count for count in THREAD_COUNTS if count <= limit), *seen, limit})


def _machine(cpu_model: str | None, architecture: str, threads: int) -> Machine:
    """Describe a machine of which only the CPU's name and the threads used are known."""
    cpus = tuple(range(threads))
    return Machine(
        cpu_model=cpu_model,
        architecture=architecture,
        operating_system="unknown",
        logical_cpus=cpus,
        online_cpus=cpus,
        allowed_cpus=cpus,
        physical_cores=None,
        packages=None,
        threads_per_core=None,
        quota_cpus=None,
        effective_cpus=threads,
        memory_bytes=None,
        memory_limit_bytes=None,
    )


def _read_measurement(fit: RatesFit, threads: int) -> Measurement:
    """State the bandwidth that the rows imply, in the place of one that was measured."""
    return Measurement(
        kernel="read",
        isa="inferred",
        threads=threads,
        cpus=None,
        page_kind="anon_4k",
        working_set_bytes=_PASS_BYTES,
        bytes_per_pass=_PASS_BYTES,
        samples_s=(_PASS_BYTES / fit.read_rate(threads).value,),
    )


def _weight_rates(fit: RatesFit, name: str, threads: int) -> list[EngineRate]:
    """Return a type's rate for dense matrices and for experts: rows do not tell them apart."""
    rate = fit.weight_rate(name, threads)
    return [
        EngineRate(
            type=name,
            threads=threads,
            columns=ANY_COLUMNS,
            bytes_per_s=rate.value,
            relative_error=min(rate.relative_error, MAX_RELATIVE),
            kind=kind,
        )
        for kind in ("matmul", "experts")
    ]


def _attention_rate(fit: RatesFit, key: str, threads: int) -> AttentionRate:
    rate = fit.attention_rate(key, threads)
    type_k, type_v, flash = key.split(":")
    return AttentionRate(
        kv_type_k=type_k,
        kv_type_v=type_v,
        flash_attn=flash == "on",
        head_dim=ANY_HEAD_DIM,
        threads=threads,
        bytes_per_s=rate.value,
        relative_error=min(rate.relative_error, MAX_RELATIVE),
    )
