"""The held-out experiment: calibrate on probes, write the profile, then judge it on models.

No probe shares width, depth or FFN size with a model it is judged on; the profile's hash is
printed before the first observation. Several repetitions calibrate anew each time, so that
the machine's drift between calibration and use is in the error, as it is for a user.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise, product
from pathlib import Path

import msgspec

from cpubound import __version__, api, stats
from cpubound.cost.decode import predict_decode
from cpubound.cost.kernel_form import KernelForm
from cpubound.cost.values import Prediction
from cpubound.engine import open_runner
from cpubound.engine.synth import write_model
from cpubound.engine.temporary import model_folder
from cpubound.measuring.plan import load_plan
from cpubound.measuring.probes import plan_probes
from cpubound.model.resolve import resolve_model
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec
from cpubound.profile.file import load_profile, save_profile
from cpubound.profile.values import MachineProfile
from cpubound.report.tables import Table, render_table
from cpubound.report.validation import validation_document
from cpubound.units import MIB, format_percent, format_significant
from cpubound.validation.cells import Cell, Setting, Validation, plan_cell, run_cells, summarize

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHAPE_KEYS = ("embedding_length", "block_count", "feed_forward_length")
GROUPS_FILE = Path(__file__).with_name("held_out.toml")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Models that are observed in one shuffled block, at every combination of the lists."""

    models: tuple[str, ...]
    threads: tuple[int, ...]
    depths: tuple[int, ...] = (0,)
    kv_types: tuple[str, ...] = ("f16",)
    flash_attn: tuple[bool, ...] = (True,)

    def settings(self, most_threads: int) -> list[Setting]:
        """Return the settings of the cells, within the machine's CPUs."""
        return [
            Setting(
                threads=threads,
                depth_tokens=depth,
                kv_type_k=kv_type,
                kv_type_v=kv_type,
                flash_attn=flash_attn,
            )
            for threads, depth, kv_type, flash_attn in product(
                self.threads, self.depths, self.kv_types, self.flash_attn
            )
            if threads <= most_threads
        ]


CELL_COLUMNS = ("model", "quant", "threads", "depth", "KV", "fa", "predicted")


@dataclass(frozen=True, kw_only=True)
class JudgedCell:
    """A cell with what our own kernels alone would have said of it."""

    cell: Cell
    kernel: Prediction

    @property
    def kernel_error(self) -> float:
        return self.kernel.tokens_per_s / self.cell.observed_tokens_per_s - 1

    @property
    def is_inside_kernel(self) -> bool:
        return self.kernel.low <= self.cell.observed_tokens_per_s <= self.kernel.high


def main(argv: Sequence[str]) -> int:
    """Run the experiment and print its tables."""
    options = _parse(argv)
    groups = load_groups(options.groups, options.real)
    specs = [resolve_model(model) for group in groups for model in group.models]
    shared = shared_shapes(specs)
    if shared:
        print("\n".join(f"not held out: {line}" for line in shared), file=sys.stderr)
        return 1
    repetitions: list[list[JudgedCell]] = []
    for repetition in range(options.repetitions):
        profile = load_profile(options.profile) if options.profile else api.calibrate()
        print(f"profile {profile_hash(profile)[:16]} of {profile.created}", flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            save_profile(profile, options.out / f"profile-{repetition}.json")
        cells = judge(profile, groups, options.seconds, options.seed + repetition)
        repetitions.append(cells)
        print(_heading(profile))
        print(render_table(judged_table(cells), "markdown"))
        print(f"\n{summary_text(cells)}\n", flush=True)
        if options.out is not None:
            _write(options.out / f"validation-{repetition}.json", profile, cells)
    if len(repetitions) > 1:
        print(f"All {len(repetitions)} repetitions together:")
        print(summary_text([cell for cells in repetitions for cell in cells]))
        print(
            f"same cell, one repetition predicting the next: "
            f"{repetition_distance(repetitions) * 100:.1f} % (median)"
        )
    return 0


def load_groups(path: Path, real: Sequence[str] = ()) -> list[Group]:
    """Read the groups of cells; ``real`` are files of real models to judge as well."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = msgspec.convert(data["groups"], list[Group])
    if real:
        groups.append(Group(models=tuple(real), threads=(1, 2)))
    return groups


def judge(
    profile: MachineProfile, groups: Sequence[Group], seconds_per_cell: float, seed: int
) -> list[JudgedCell]:
    """Observe every cell of every group, the groups in random order."""
    order = random.Random(seed)
    found: dict[int, list[JudgedCell]] = {}
    for place in order.sample(range(len(groups)), len(groups)):
        found[place] = _judge_group(profile, groups[place], seconds_per_cell, seed)
    return [cell for place in sorted(found) for cell in found[place]]


def _judge_group(
    profile: MachineProfile, group: Group, seconds_per_cell: float, seed: int
) -> list[JudgedCell]:
    settings = group.settings(profile.machine.effective_cpus)
    specs = [resolve_model(model) for model in group.models]
    with ExitStack() as stack:
        runner = stack.enter_context(open_runner())
        folder = stack.enter_context(model_folder())
        cells, kernels = [], []
        for number, spec in enumerate(specs):
            path = spec.shards[0] if spec.shards else str(folder / f"{number}.gguf")
            if not spec.shards:
                write_model(spec, path, quantize=runner.quantize)
            for setting in settings:
                cells.append(plan_cell(profile, spec, path, setting))
                kernels.append(predict_without_engine(profile, spec, setting, cells[-1].tokens))
        counts = sorted({setting.threads for setting in settings})
        validation = run_cells(
            cells,
            runner,
            stack.enter_context(api.open_reference(profile, counts)),
            seconds=seconds_per_cell * len(cells),
            open_bytes=(profile.machine.usable_memory_bytes or 0) // 2,
            progress=api.no_progress,
            seed=seed,
        )
    return [
        JudgedCell(cell=cell, kernel=kernel)
        for cell, kernel in zip(validation.cells, kernels, strict=True)
    ]


def predict_without_engine(
    profile: MachineProfile,
    spec: ModelSpec,
    setting: Setting,
    tokens: int,
    forms: Mapping[str, KernelForm] | None = None,
) -> Prediction:
    """Return what the profile says of a cell's runs of ``tokens`` without its engine stage.

    ``forms`` stand in for the shipped ones (``cost.kernel_form``).
    """
    traffic = compute_traffic(
        spec,
        depth_tokens=setting.depth_tokens + tokens // 2,
        kv_type_k=setting.kv_type_k,
        kv_type_v=setting.kv_type_v,
        flash_attn=setting.flash_attn,
    )
    alone = msgspec.structs.replace(profile, engine=None)
    return predict_decode(alone, traffic, setting.threads, forms)


def judged_table(cells: Sequence[JudgedCell]) -> Table:
    """Return one row for each cell: the prediction, what was seen, and the other bases."""
    return Table(
        columns=(
            *CELL_COLUMNS,
            "observed (n)",
            "error",
            "paired",
            "inside",
            "noise",
            "own kernels",
            "bytes/bandwidth",
        ),
        rows=tuple(_row(judged) for judged in cells),
        right=frozenset({"threads", "depth", "error", "paired", "own kernels", "bytes/bandwidth"}),
    )


def cell_fields(p: Prediction) -> tuple[str, ...]:
    """Return what a cell is and what was predicted of it, under ``CELL_COLUMNS``."""
    return (
        p.model,
        p.quant_label,
        str(p.threads),
        str(p.depth_tokens),
        p.kv_type_k,
        "on" if p.flash_attn else "off",
        f"{format_significant(p.tokens_per_s)} [{format_significant(p.low)}, "
        f"{format_significant(p.high)}]",
    )


def _row(judged: JudgedCell) -> tuple[str, ...]:
    cell = judged.cell
    return (
        *cell_fields(cell.prediction),
        f"{format_significant(cell.observed_tokens_per_s)} ({len(cell.samples_s)})",
        format_percent(cell.relative_error),
        "–" if cell.paired_error is None else format_percent(cell.paired_error),
        "yes" if cell.inside else "no",
        "–" if cell.noise_floor is None else f"±{cell.noise_floor * 100:.1f} %",
        format_percent(judged.kernel_error, 0),
        format_percent(cell.naive_error, 0),
    )


def summary_text(cells: Sequence[JudgedCell]) -> str:
    """Return the statistics that the marks are about."""
    s = summarize([judged.cell for judged in cells])
    kernel = stats.median([abs(judged.kernel_error) for judged in cells])
    kernel_inside = sum(judged.is_inside_kernel for judged in cells)
    kernel_widths = [(c.kernel.high - c.kernel.low) / c.kernel.tokens_per_s for c in cells]
    paired = [c.cell.paired_error for c in cells if c.cell.paired_error is not None]
    lines = [
        f"{s.cells} cells: median |error| {s.median_abs_error * 100:.1f} %, 95th percentile "
        f"{s.p95_abs_error * 100:.1f} %, worst {s.max_abs_error * 100:.1f} %, "
        f"bias {s.bias * 100:+.1f} %",
        f"inside the 90 % interval {round(s.coverage * s.cells)} ({s.coverage * 100:.0f} %), "
        f"median width {s.median_relative_width * 100:.0f} %",
        f"own kernels alone {kernel * 100:.1f} %, bytes over bandwidth "
        f"{s.naive_median_abs_error * 100:.1f} %",
        f"own kernels' interval holds {kernel_inside} ({kernel_inside / len(cells) * 100:.0f} %), "
        f"median width {stats.median(kernel_widths) * 100:.0f} %",
    ]
    if s.noise_floor is not None:
        lines.append(f"noise floor {s.noise_floor * 100:.1f} %")
    if paired:
        lines.append(
            f"paired |error| {stats.median([abs(e) for e in paired]) * 100:.1f} %, "
            f"bias {stats.median(paired) * 100:+.1f} %"
        )
    return "\n".join(lines)


def shared_shapes(specs: Sequence[ModelSpec]) -> list[str]:
    """Name every probe that shares width, depth or FFN size with a model."""
    probes = plan_probes(load_plan(), load_plan().probe_mib * MIB)
    found = []
    for probe in probes:
        for spec in specs:
            for key in SHAPE_KEYS:
                value = probe.spec.hyper_parameters.get(key)
                if value and value == spec.hyper_parameters.get(key):
                    found.append(f"{probe.name} and {spec.name} share {key} {value}")
    return found


def profile_hash(profile: MachineProfile) -> str:
    """Return the SHA-256 of the profile as saved."""
    return hashlib.sha256(msgspec.json.encode(profile)).hexdigest()


def repetition_distance(repetitions: Sequence[Sequence[JudgedCell]]) -> float:
    """Return the median distance of a cell's observation from its next repetition's."""
    distances = [
        abs(before.cell.observed_tokens_per_s / after.cell.observed_tokens_per_s - 1)
        for first, second in pairwise(repetitions)
        for before, after in zip(first, second, strict=True)
    ]
    return stats.median(distances)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate accuracy", description=__doc__)
    parser.add_argument("--groups", type=Path, default=GROUPS_FILE, help="TOML of the cells")
    parser.add_argument("--real", nargs="*", default=[], help="files of real models, judged too")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="of observing for each cell")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--profile", help="judge this profile instead of calibrating")
    parser.add_argument("--out", type=Path, help="folder for the profiles and JSON documents")
    return parser.parse_args(argv)


def _heading(profile: MachineProfile) -> str:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    engine = profile.engine
    return (
        f"{now} · {profile.machine.cpu_model}, {profile.machine.effective_cpus} CPUs · "
        f"cpubound {__version__} · {engine.name if engine else 'no engine'} "
        f"{engine.version if engine else ''} · noise {profile.noise.verdict} "
        f"(±{profile.noise.spread * 100:.0f} %)\n"
    )


def _write(path: Path, profile: MachineProfile, cells: Sequence[JudgedCell]) -> None:
    plain = tuple(judged.cell for judged in cells)
    engine = profile.engine.version if profile.engine else ""
    validation = Validation(cells=plain, summary=summarize(plain), engine=engine)
    path.write_bytes(msgspec.json.encode(validation_document(profile, validation)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
