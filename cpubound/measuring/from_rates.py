"""A profile of a machine that cpubound never ran on, from a few of its decode rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone

from msgspec import structs

from cpubound import __version__
from cpubound.cost.kernel_priors import KernelPriors, isa_of_cpu, kernel_priors
from cpubound.cost.rate_fit import Estimate, RateRow, RatesFit, fit_rates
from cpubound.cost.terms import BANDS, STRIDES, attention_setting
from cpubound.engine.values import EngineIdentity
from cpubound.kernels.values import Measurement
from cpubound.machine.values import Machine
from cpubound.model.values import ModelTraffic
from cpubound.profile.values import (
    MAX_RELATIVE,
    EngineCalibration,
    MachineProfile,
    ProbeRun,
    RateTable,
    judge_noise,
)

# Rates do not depend on the size of a head here: rows cannot tell.
ANY_HEAD_DIM = 128
# The law is tabled at these counts up to twice the largest that was seen.
THREAD_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_MIN_TABLED = 8
_PASS_BYTES = 2**28
_ARCHITECTURES = {"x86": "x86_64", "arm": "aarch64"}


def rate_row(traffic: ModelTraffic, threads: int, tokens_per_s: float) -> RateRow:
    """Pair an observed rate with what a step of the model moves."""
    weight_bytes: Counter[str] = Counter()
    for (name, _), n_bytes in traffic.matrices.items():
        weight_bytes[name] += n_bytes
    return RateRow(
        tokens_per_s=tokens_per_s,
        setting=structs.replace(traffic.setting, threads=threads),
        label=f"{traffic.model} {traffic.quant_label}",
        weight_bytes=dict(weight_bytes),
        kv_bytes=traffic.attention_read_bytes,
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
    counts = _table_counts([row.setting.threads for row in rows])
    most = max(row.setting.threads for row in rows)
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
            tables=tuple(_table(fit, threads) for threads in counts),
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
    setting = row.setting
    return ProbeRun(
        probe=row.label,
        type=max(row.weight_bytes, key=lambda name: row.weight_bytes[name], default="unknown"),
        threads=setting.threads,
        depth_tokens=setting.depth_tokens,
        kv_type_k=setting.kv_type_k,
        kv_type_v=setting.kv_type_v,
        flash_attn=setting.flash_attn,
        terms={
            **{f"bytes:{name}": float(n) for name, n in row.weight_bytes.items()},
            f"kv:{attention_setting(setting)}:{ANY_HEAD_DIM}": float(row.kv_bytes),
            "product": float(row.products),
        },
        samples_s=(1 / row.tokens_per_s,),
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


def _table(fit: RatesFit, threads: int) -> RateTable:
    """Lay the law out at a thread count.

    Rows do not tell dense matrices from experts, nor query heads from KV heads.
    """
    found: dict[str, Estimate] = {}
    for name in fit.types:
        rate = fit.weight_rate(name, threads)
        found[f"bytes:{name}"] = found[f"experts:{name}"] = _inverse(rate)
    for setting in fit.attention_keys:
        found[f"kv:{setting}:{ANY_HEAD_DIM}"] = _inverse(fit.attention_rate(setting, threads))
        by_head = f"attention:{setting}:{ANY_HEAD_DIM}:{STRIDES[0][0]}:{BANDS[0][0]}"
        found[by_head] = Estimate(value=0.0, relative_error=0.0)
    found["product"] = Estimate(value=fit.product_seconds(threads).value, relative_error=0.2)
    return RateTable(
        threads=threads,
        keys=tuple(found),
        seconds=tuple(estimate.value for estimate in found.values()),
        relative_errors=tuple(min(e.relative_error, MAX_RELATIVE) for e in found.values()),
        residuals=(min(fit.spread, MAX_RELATIVE),),
    )


def _inverse(rate: Estimate) -> Estimate:
    return Estimate(value=1 / rate.value, relative_error=rate.relative_error)
