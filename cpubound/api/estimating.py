"""What a machine that nobody measured should do, from words: a CPU's name, cores, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cpubound.api.common import spec_of
from cpubound.api.kinship import kinship_of
from cpubound.api.predicting import inspect_model
from cpubound.cost.kin_table import Kinship
from cpubound.cost.values import MachineEstimate
from cpubound.errors import UsageError
from cpubound.machine.described import DescribedMachine, describe_machine
from cpubound.model.values import ModelSpec

if TYPE_CHECKING:
    from cpubound.cost.estimate import Step

# Of threads that come this near the best, the fewest are taken, as ``tune`` does.
NEAR_BEST = 0.03
UNKNOWN_CPU = Kinship(name="", micro_architecture="", family="", architecture="")


def estimate(
    machine: str | DescribedMachine,
    model: str | ModelSpec,
    *,
    threads: Sequence[int] | None = None,
    depth: int = 0,
    n_ctx: int | None = None,
    kv_type: str = "f16",
    flash_attn: bool = True,
) -> tuple[MachineEstimate, ...]:
    """Estimate the decode speed of a model on a machine described in words.

    Parameters
    ----------
    machine : ``"epyc 9654, 48 cores, ddr5-4800-12ch"``, or what was understood of such words.
    threads : decode threads; by default the fewest that come near the best.

    Raises
    ------
    UsageError : a CPU that is not known, one of which the number of cores is not, no such setting.
    """
    from cpubound.cost.estimate import decode_step
    from cpubound.cost.estimate import estimate as estimate_steps

    described = describe_machine(machine) if isinstance(machine, str) else machine
    cores = usable_cores(described)
    kinship = UNKNOWN_CPU if described.cpu is None else kinship_of(described.cpu)
    traffic = inspect_model(
        spec_of(model), depth=depth, n_ctx=n_ctx, kv_type=kv_type, flash_attn=flash_attn
    )
    counts = thread_counts(cores) if threads is None else tuple(threads)
    steps: list[Step] = [decode_step(traffic, count, kinship.architecture) for count in counts]
    found = estimate_steps(
        "decode",
        kinship,
        cores,
        steps,
        read_bytes_per_s=described.read_bytes_per_s,
        peak_bytes_per_s=_peak(described, cores),
    )
    estimates = tuple(
        MachineEstimate(
            model=traffic.model,
            quant_label=traffic.quant_label,
            machine=described.words,
            threads=count,
            depth_tokens=depth,
            tokens_per_s=1 / one.seconds,
            low=1 / one.high_s,
            high=1 / one.low_s,
            bytes_per_token=traffic.total_bytes,
            resident_bytes=traffic.resident_bytes,
        )
        for count, one in zip(counts, found, strict=True)
    )
    if threads is not None:
        return estimates
    best = max(one.tokens_per_s for one in estimates)
    return (next(one for one in estimates if one.tokens_per_s >= (1 - NEAR_BEST) * best),)


def usable_cores(described: DescribedMachine) -> int:
    """Return the cores that decode well together: of the fastest kind, where there are several.

    Raises ``UsageError`` where neither the words nor the CPU's name tell.
    """
    kinds = described.cpu.cores if described.cpu is not None else ()
    if described.cores is None:
        raise UsageError(
            f"how many cores? ({described.words}): the name does not tell, add '16 cores' to it"
        )
    if len(kinds) > 1 and kinds[0].count is not None:
        return min(described.sockets * kinds[0].count, described.cores)
    return described.cores


def thread_counts(cores: int) -> tuple[int, ...]:
    """Return the thread counts worth a look on so many cores."""
    doubling = [2**power for power in range(cores.bit_length()) if 2**power < cores]
    return tuple(sorted({*doubling, *(3 * count // 2 for count in doubling[1:]), cores} - {0}))


def _peak(described: DescribedMachine, cores: int) -> float | None:
    """Return what memory gives at most: if told, or if the machine is no part of a server."""
    cpu = described.cpu
    is_whole = cpu is not None and cpu.core_count is not None and 2 * cores > cpu.core_count
    return described.peak_bytes_per_s if described.memory_given or is_whole else None
