"""The screen that ends a fit to other people's rates."""

from __future__ import annotations

from cpubound.cost.rates import Rate, weight_rate
from cpubound.foreign import shell_word, showing
from cpubound.profile.values import MachineProfile
from cpubound.report.profile import machine_line
from cpubound.report.tables import Table, indent, render_table
from cpubound.units import GB, format_significant

# Rows of other machines tell one rate for all lengths.
ANY_COLUMNS = 4096


@showing()
def fitted_text(profile: MachineProfile, place: str) -> str:
    """Return the screen: the machine, the rates that the rows imply, and how sure they are."""
    lines = [machine_line(profile)]
    lines += [f"Fitted to {profile.fitted_to}: nothing was measured there by cpubound."]
    lines += ["", "Rates that the rows imply, GB/s (standard error):"]
    lines += [indent(render_table(fitted_table(profile))), ""]
    lines += [f"Warning: {warning}." for warning in profile.warnings]
    lines += ["", f"Saved as {place}. Next:  cpubound predict MODEL --profile {shell_word(place)}"]
    return "\n".join(lines)


def fitted_table(profile: MachineProfile) -> Table:
    """Return a row for each weight type of the rows, that with most bytes first."""
    engine = profile.engine
    if engine is None:
        return Table(columns=("type",), rows=())
    n_bytes: dict[str, float] = {}
    for run in engine.probes:
        for key, amount in run.terms.items():
            kind, _, name = key.partition(":")
            if kind == "bytes":
                n_bytes[name] = n_bytes.get(name, 0.0) + amount
    counts = [t for t in engine.threads if t <= profile.machine.effective_cpus]
    shown = counts if len(counts) <= 4 else [counts[0], *counts[-3:]]
    headings = tuple(f"{t} thread{'s' * (t > 1)}" for t in shown)
    return Table(
        columns=("type", *headings),
        rows=tuple(
            (name, *(_rate(weight_rate(engine, name, ANY_COLUMNS, t)) for t in shown))
            for name in sorted(n_bytes, key=lambda name: -n_bytes[name])
        ),
        right=frozenset(headings),
    )


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return "–"
    return f"{format_significant(rate.bytes_per_s / GB)} (±{rate.relative_error * 100:.0f} %)"
