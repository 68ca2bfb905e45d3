"""The file ``cpubound/cost/kernel_form.toml`` as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cpubound.cost.kernel_form import Costs, KernelForm
from cpubound.profile.values import MachineProfile


def header_lines(profiles: Sequence[MachineProfile]) -> list[str]:
    """Return where the file is from, as comments."""
    lines = [
        "# How llama.cpp stands to our own kernels: see kernel_form.py beside this file.",
        "# Printed by: python -m calibrate kernel_form PROFILE…, from these profiles:",
    ]
    for profile in profiles:
        engine = profile.engine
        name = f", {engine.name} {engine.version}" if engine else ""
        lines.append(
            f"#   {profile.created[:16]} UTC, {profile.machine.cpu_model}, "
            f"{profile.machine.effective_cpus} CPUs{name}"
        )
    return lines


def form_lines(isa: str, form: KernelForm) -> list[str]:
    """Return a form as TOML, one standing a line, numbers to three digits."""
    single = ("cpu_model", "columns", "tokens", "sharpness", "attention_growth", "state_growth")
    lines = [f"[{isa}]", *(f"{name} = {_toml(getattr(form, name))}" for name in single)]
    lines += ["attention = [", *(f"    {_toml(row)}," for row in form.attention), "]"]
    for table in ("kernels", "types", "batches", "experts", "states"):
        rows: Mapping[str, msgspec.Struct] = getattr(form, table)
        lines += ["", f"[{isa}.{table}]", *(f"{name} = {_toml(row)}" for name, row in rows.items())]
    costs = [f"{name} = {_toml(getattr(form.costs, name))}" for name in Costs.__struct_fields__]
    return [*lines, "", f"[{isa}.costs]", *costs]


def _toml(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        fields = [f"{name} = {_toml(getattr(value, name))}" for name in value.__struct_fields__]
        return "{ " + ", ".join(fields) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return _number(value)
    return msgspec.json.encode(value).decode()


def _number(value: float) -> str:
    """Write three digits, with a point or an exponent, as TOML wants a float."""
    text = f"{value:.3g}"
    return text if any(c in text for c in ".e") else f"{text}.0"
