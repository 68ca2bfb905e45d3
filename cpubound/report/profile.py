"""The screen that ends a calibration."""

from __future__ import annotations

from collections.abc import Sequence

from cpubound.cost.rates import measured_types, weight_rate
from cpubound.cost.values import Prediction
from cpubound.foreign import showing
from cpubound.machine.values import Machine, format_cpu_list
from cpubound.profile.values import EngineCalibration, MachineProfile, MemoryLevel, SaturationPoint
from cpubound.report.tables import Table, indent, render_table
from cpubound.units import GB, format_binary_bytes, format_rate, format_significant

# The row length that rates are shown at: the width of models of 7 B and 8 B.
USUAL_COLUMNS = 4096


@showing()
def profile_text(
    profile: MachineProfile, expected: Sequence[tuple[str, Sequence[Prediction | None]]]
) -> str:
    """Return the screen: the machine, what its memory gives, and what that is worth.

    ``expected`` holds a label and its predictions at Q4_K_M and Q8_0 for each model.
    """
    lines = [machine_line(profile), *_bandwidth_lines(profile), *core_lines(profile)]
    lines += _noise_lines(profile)
    if profile.engine is not None:
        lines.append(_engine_line(profile.engine))
    if expected:
        lines += ["", _expected_table(profile, expected)]
    lines += [f"Warning: {warning}." for warning in profile.warnings]
    return "\n".join(lines)


@showing()
def machine_line(profile: MachineProfile) -> str:
    """Return one line that names the machine and the engine."""
    machine = profile.machine
    parts = [machine.cpu_model or machine.architecture, _cores(machine)]
    if machine.usable_memory_bytes:
        parts.append(format_binary_bytes(machine.usable_memory_bytes))
    parts.append(machine.operating_system)
    if profile.engine is not None:
        parts.append(f"{profile.engine.name} {profile.engine.version}")
    return " · ".join(parts)


def bandwidth_table(profile: MachineProfile) -> Table:
    """Return every bandwidth measurement, a row each."""
    rows = tuple(
        (
            m.kernel,
            m.isa,
            m.page_kind,
            str(m.threads),
            f"{m.median_bytes_per_s / GB:.2f}",
            f"{m.best_bytes_per_s / GB:.2f}",
            f"{m.spread * 100:.1f}",
            str(len(m.samples_s)),
        )
        for m in profile.bandwidth
    )
    columns = ("kernel", "isa", "pages", "threads", "median GB/s", "best GB/s", "± %", "samples")
    return Table(columns=columns, rows=rows, right=frozenset(columns[3:]))


def _cores(machine: Machine) -> str:
    online = len(machine.online_cpus)
    cores = machine.physical_cores
    text = f"{online} CPUs" if cores is None else f"{cores} cores, {online} threads"
    if machine.effective_cpus < online:
        text += f", {machine.effective_cpus} usable here"
    return text


def _bandwidth_lines(profile: MachineProfile) -> list[str]:
    rows = profile.measurements("read", "anon_4k")
    best = max(rows.values(), key=lambda m: m.median_bytes_per_s)
    lines = [
        _labelled(
            "memory read", f"{format_rate(best.median_bytes_per_s)} {_at_threads(best.threads)}"
        )
    ]
    point = next((s for s in profile.saturation if s.kernel == "read"), None)
    if point is not None and point.threads in rows:
        here = rows[point.threads].median_bytes_per_s
        share = here / best.median_bytes_per_s * 100
        lines[0] += f"     saturates at {_knee(point)} ({format_rate(here)}, {share:.0f} %)"
    for label, kind in (("mapped files", "file"), ("huge pages", "anon_2m")):
        other = profile.measurements("read", kind).get(best.threads)
        if other is not None:
            gain = other.median_bytes_per_s / best.median_bytes_per_s - 1
            rate = format_rate(other.median_bytes_per_s)
            lines.append(_labelled(label, f"{rate} ({gain * 100:+.0f} %)"))
    return [*lines, *_placement_lines(profile), *_node_lines(profile)]


def _knee(point: SaturationPoint) -> str:
    if point.low is None or point.high is None or point.low == point.high:
        return str(point.threads)
    return f"{point.threads} [{point.low} … {point.high}]"


def _placement_lines(profile: MachineProfile) -> list[str]:
    """Show for each placement its largest team, beside the main curve at as many threads."""
    main = profile.measurements("read", "anon_4k")
    lines = []
    for name in dict.fromkeys(row.placement for row in profile.placements):
        rows = [row for row in profile.placements if row.placement == name]
        row = max(rows, key=lambda r: (r.threads in main, r.median_bytes_per_s))
        text = f"{format_rate(row.median_bytes_per_s)} {_at_threads(row.threads)}"
        listed = format_cpu_list(row.cpus or ())
        if 0 < len(listed) < 40:  # a longer list says nothing at a glance
            text += f" on CPUs {listed}"
        if row.threads in main:
            text += f" (else {format_rate(main[row.threads].median_bytes_per_s)})"
        lines.append(_labelled(name, text))
    return lines


def _node_lines(profile: MachineProfile) -> list[str]:
    """Show what each node reads from each, a line per reading node."""
    lines = []
    for reader in dict.fromkeys(row.cpu_node for row in profile.nodes):
        rates = [
            f"{row.memory_node}: {format_rate(row.median_bytes_per_s)}"
            for row in profile.nodes
            if row.cpu_node == reader
        ]
        lines.append(_labelled(f"node {reader} reads", " · ".join(rates)))
    return lines


@showing()
def core_lines(profile: MachineProfile) -> list[str]:
    """Return what cores and caches do by themselves, as far as it was measured."""
    lines = []
    if profile.levels:
        lines.append(_labelled("one thread", " · ".join(map(_level, profile.levels))))
    if profile.peak:
        threads = max(row.threads for row in profile.peak)
        rows = [row for row in profile.peak if row.threads == threads]
        rates = " · ".join(
            f"{row.dtype.upper()} {format_significant(row.flops_per_s / 1e9)}" for row in rows
        )
        lines.append(_labelled("compute", f"{rates} GFLOP/s {_at_threads(threads)}"))
    if profile.barriers:
        slowest = max(profile.barriers, key=lambda row: row.threads)
        nanoseconds = format_significant(slowest.seconds * 1e9, 2)
        lines.append(_labelled("barrier", f"{nanoseconds} ns {_at_threads(slowest.threads)}"))
    return lines


def _level(level: MemoryLevel) -> str:
    parts = ["memory" if level.level == 0 else f"L{level.level}"]
    if level.bytes_per_s is not None:
        parts.append(format_rate(level.bytes_per_s))
    if level.latency_s is not None:
        parts.append(f"{format_significant(level.latency_s * 1e9, 2)} ns")
    return " ".join(parts)


def _at_threads(count: int) -> str:
    return f"at {count} thread" if count == 1 else f"at {count} threads"


@showing()
def noise_line(profile: MachineProfile) -> str:
    """Return the line that a report of a noisy machine's profile ends with, or nothing."""
    return "" if profile.noise.note is None else f"\nNote: {profile.noise.note}."


def _noise_lines(profile: MachineProfile) -> list[str]:
    noise = profile.noise
    text = f"{noise.verdict}: ±{noise.spread * 100:.0f} % over {noise.seconds:.0f} s"
    if noise.verdict == "quiet":
        return [_labelled("noise", text)]
    if not noise.causes:
        text += "; other programs or neighbours use this memory: expect speeds to move as much"
    return [_labelled("noise", text), *(_labelled("", cause) for cause in noise.causes)]


def _engine_line(engine: EngineCalibration) -> str:
    if not measured_types(engine):
        return _labelled("engine", "no quant type could be measured")
    threads = max(engine.threads)
    rates: dict[str, float] = {}
    for name in measured_types(engine):
        rate = weight_rate(engine, name, USUAL_COLUMNS, threads)
        if rate is not None:
            rates[name] = rate.bytes_per_s
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    listed = " · ".join(f"{name} {format_significant(rate / GB, 2)}" for name, rate in ordered)
    return _labelled("engine", f"{listed} GB/s {_at_threads(threads)}")


def _expected_table(
    profile: MachineProfile, expected: Sequence[tuple[str, Sequence[Prediction | None]]]
) -> str:
    rows = tuple((label, *(_plus_minus(p) for p in row)) for label, row in expected)
    heading = "  expected decode, tok/s (empty context, best threads)"
    table = Table(columns=("", "Q4_K_M", "Q8_0"), rows=rows, right=frozenset({"Q4_K_M", "Q8_0"}))
    text = f"{heading}\n{indent(render_table(table))}"
    if profile.engine is None:
        text += "\n  (estimates from our own kernels: llama.cpp was not measured)"
    return text


def _plus_minus(p: Prediction | None) -> str:
    if p is None:
        return "–"
    if p.fits_in_memory is False:
        return "too big"
    half = (p.high - p.low) / 2
    number = format_significant(p.tokens_per_s)
    if p.basis == "ceiling":
        return f"< {number}"
    return f"{number} ± {format_significant(half, 1)}"


def _labelled(label: str, text: str) -> str:
    return f"  {label:<15}{text}"
