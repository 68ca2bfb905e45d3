"""The ratios of llama.cpp's times to our own kernels' (``cost/transfer.toml``), from kept runs.

For each key of the rate tables and each run: llama.cpp's seconds at one and at two threads
over those of our kernel of the type, or of a like one, at as many threads; without a kernel
of its kind, times the mean speed of our kernels. The ratio is the median over the runs, its
error their spread, between machines where there are several.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from calibrate.kept_runs import parse_runs, read_runs, runs_parser
from cpubound import stats
from cpubound.cost.rates import interpolate, neighbours, table_at
from cpubound.cost.transfer import Ratio, Transfer, isa_of, kernel_speed, own_rates
from cpubound.profile.values import MachineProfile, RateTable

# A ratio of one run, or of runs that agree by chance, is not known better than this.
LEAST_ERROR = 0.03
MAX_ERROR = 1.0


def main(argv: Sequence[str]) -> int:
    """Print ``transfer.toml``."""
    options = parse_runs(runs_parser("transfer", __doc__), argv)
    profiles: dict[str, list[MachineProfile]] = {}
    for run in read_runs(options.runs):
        profiles.setdefault(isa_of(run.profile.machine.architecture), []).append(run.profile)
    print("# llama.cpp's seconds over those of our own kernels, at one thread and at two.")
    print("# Printed by: python -m calibrate transfer")
    for isa, rows in sorted(profiles.items()):
        print("\n".join(transfer_lines(isa, fit_transfer(rows))))
    return 0


def fit_transfer(profiles: Sequence[MachineProfile]) -> Transfer:
    """Return the ratios of profiles that measured both llama.cpp and our kernels.

    Raises
    ------
    ValueError : none did.
    """
    usable = [p for p in profiles if p.engine is not None and p.engine.tables and own_rates(p)]
    if not usable:
        raise ValueError("no profile has both an engine stage and our kernels")
    keys = {key: None for p in usable for table in _tables(p) for key in table.keys}
    ratios = {}
    for key in keys:
        if key.startswith("cached@"):
            continue
        found = [ratio for p in usable if (ratio := _ratio_of(p, key)) is not None]
        if found:
            ratios[key] = _joined(found)
    isas = {m.isa for p in usable for m in p.bandwidth if m.kernel.startswith("gemv_")}
    engine = usable[-1].engine
    return Transfer(
        measured=f"{usable[-1].created[:10]}, {engine.name} {engine.version}" if engine else "",
        cpus=tuple(sorted({p.machine.cpu_identity or "unknown" for p in usable})),
        kernel_isas=tuple(sorted(isas)),
        ratios=ratios,
    )


def transfer_lines(isa: str, transfer: Transfer) -> list[str]:
    """Return the lines of one instruction set's table."""
    lines = [
        "",
        f"[{isa}]",
        f'measured = "{transfer.measured}"',
        f"cpus = {list(transfer.cpus)!r}".replace("'", '"'),
        f"kernel_isas = {list(transfer.kernel_isas)!r}".replace("'", '"'),
        "",
        f"[{isa}.ratios]",
    ]
    for key, ratio in transfer.ratios.items():
        kernel = f'kernel = "{ratio.kernel}", ' if ratio.kernel is not None else ""
        lines.append(
            f'"{key}" = {{ {kernel}one = {ratio.one:.4g}, two = {ratio.two:.4g}, '
            f"error = {ratio.error:.2f} }}"
        )
    return lines


def _tables(profile: MachineProfile) -> tuple[RateTable, ...]:
    return profile.engine.tables if profile.engine is not None else ()


def _ratio_of(profile: MachineProfile, key: str) -> Ratio | None:
    """Return one profile's ratio for a key, None where it was not measured at both counts."""
    own = own_rates(profile)
    kernel = _kernel_for(key, own)
    values = []
    for threads in (1, 2):
        table = table_at(_tables(profile), threads)
        if table is None:
            return None
        if key not in table.keys:
            # Some sizes of batches are measured at all threads only.
            values.append(0.0)
            continue
        reference = kernel_speed(own) if kernel is None else interpolate(own[kernel], threads)
        values.append(table.seconds_of(key) * reference)
    return Ratio(kernel=kernel, one=values[0] or values[1], two=values[1] or values[0], error=0.0)


def _kernel_for(key: str, own: dict[str, dict[int, float]]) -> str | None:
    kind, _, rest = key.partition(":")
    if kind not in ("bytes", "experts"):
        return None
    name = rest.partition("@")[0]
    for other in (name, *(n for n, _ in neighbours(name)), "Q8_0"):
        if other in own:
            return other
    return None


def _joined(found: Sequence[Ratio]) -> Ratio:
    one, two = (stats.median([getattr(r, n) for r in found]) for n in ("one", "two"))
    logs = [math.log(v / m) for r in found for v, m in ((r.one, one), (r.two, two)) if v and m]
    spread = math.sqrt(sum(x * x for x in logs) / max(len(logs) - 2, 1)) if logs else LEAST_ERROR
    return Ratio(
        kernel=found[0].kernel,
        one=one,
        two=two,
        error=min(max(spread, LEAST_ERROR), MAX_ERROR),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
