"""The held-out experiment: calibrate on probes, then judge the profile on models.

No probe shares width, depth or FFN size with a model it is judged on; the profile's hash is
printed before the first observation. Each run calibrates anew, so that the machine's drift
between calibration and use is in the error, as it is for a user.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from calibrate.kept_runs import (
    RUNS_FOLDER,
    SETS,
    SETS_FILE,
    Group,
    KeptCell,
    KeptRun,
    judge_run,
    load_groups,
    write_run,
)
from calibrate.pooled import cell_table, summary_table
from cpubound import __version__, api, stats
from cpubound.engine.inprocess import open_runner
from cpubound.engine.synth import write_model
from cpubound.measuring.plan import load_plan
from cpubound.measuring.probes import plan_probes
from cpubound.model.resolve import resolve_model
from cpubound.model.values import ModelSpec
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile
from cpubound.report.tables import render_table
from cpubound.temporary import model_folder
from cpubound.units import MIB
from cpubound.validation.cells import plan_cell, run_cells

SHAPE_KEYS = ("embedding_length", "block_count", "feed_forward_length")


def main(argv: Sequence[str]) -> int:
    """Run the experiment, keep it and print its tables."""
    options = _parse(argv)
    groups = load_groups(options.groups)
    if options.real:
        groups["judged"].append(Group(models=tuple(options.real), threads=(1, 2), depths=(0, 2048)))
    chosen = {name: groups[name] for name in options.sets}
    specs = [
        resolve_model(model.partition("=")[0])
        for rows in chosen.values()
        for group in rows
        for model in group.models
    ]
    shared = shared_shapes(specs)
    if shared:
        print("\n".join(f"not held out: {line}" for line in shared), file=sys.stderr)
        return 1
    for number in range(options.repetitions):
        profile = load_profile(options.profile) if options.profile else api.calibrate()
        print(f"profile {profile_hash(profile)[:16]} of {profile.created}", flush=True)
        cells = observe(profile, chosen, options.seconds, options.seed + number)
        run = KeptRun(name=run_name(profile), profile=profile, cells=tuple(cells))
        write_run(run, options.out / f"{run.name}.json.xz")
        judged = judge_run(run)
        print(_heading(profile))
        print(render_table(cell_table([judged]), "markdown"))
        print(f"\n{render_table(summary_table(judged), 'markdown')}\n", flush=True)
    return 0


def observe(
    profile: MachineProfile,
    groups: dict[str, list[Group]],
    seconds_per_cell: float,
    seed: int,
) -> list[KeptCell]:
    """Observe every cell of every group, the groups in random order."""
    order = random.Random(seed)
    blocks = [(name, group) for name, rows in groups.items() for group in rows]
    found: dict[int, list[KeptCell]] = {}
    for place in order.sample(range(len(blocks)), len(blocks)):
        name, group = blocks[place]
        found[place] = _observe_group(profile, name, group, seconds_per_cell, seed)
    return [cell for place in sorted(found) for cell in found[place]]


def _observe_group(
    profile: MachineProfile, set_name: str, group: Group, seconds_per_cell: float, seed: int
) -> list[KeptCell]:
    settings = group.settings(profile.machine.effective_cpus)
    with ExitStack() as stack:
        runner = stack.enter_context(open_runner())
        folder = stack.enter_context(model_folder())
        planned = []
        for number, argument in enumerate(group.models):
            model, _, file = argument.partition("=")
            spec = resolve_model(file or model)
            path = spec.shards[0] if spec.shards else str(folder / f"{number}.gguf")
            if not spec.shards:
                write_model(spec, path, quantize=runner.quantize)
            planned += [(argument, plan_cell(profile, spec, path, setting)) for setting in settings]
        cells = [cell for _, cell in planned]
        validation = run_cells(
            cells,
            runner,
            None,
            seconds=seconds_per_cell * len(cells),
            open_bytes=(profile.machine.usable_memory_bytes or 0) // 2,
            progress=api.no_progress,
            seed=seed,
        )
    return [
        KeptCell(
            set=set_name,
            model=argument.partition("=")[0],
            is_real="=" in argument,
            threads=(setting := done.prediction.setting).threads,
            depth_tokens=setting.depth_tokens,
            kv_type_k=setting.kv_type_k,
            kv_type_v=setting.kv_type_v,
            flash_attn=setting.flash_attn,
            tokens=cell.tokens,
            observed_tokens_per_s=done.observed_tokens_per_s,
            runs_s=tuple(stats.median(run) for run in cell.runs_s),
            noise_floor=done.noise_floor,
        )
        for (argument, cell), done in zip(planned, validation.cells, strict=True)
    ]


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


def run_name(profile: MachineProfile) -> str:
    """Return a name that says the CPU and when it was calibrated."""
    machine = profile.machine.cpu_identity or profile.machine.cpu_model or "unknown"
    text = f"{machine} {profile.created[:16]}"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate accuracy", description=__doc__)
    parser.add_argument("--groups", type=Path, default=SETS_FILE, help="TOML of the cells")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument(
        "--real", nargs="*", default=[], help="trained models, judged too: NAME:TYPE=FILE"
    )
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="of observing for each cell")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--profile", help="judge this profile instead of calibrating")
    parser.add_argument("--out", type=Path, default=RUNS_FOLDER, help="folder that keeps the run")
    return parser.parse_args(argv)


def _heading(profile: MachineProfile) -> str:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    engine = profile.engine
    return (
        f"{now} · {profile.machine.cpu_identity}, {profile.machine.effective_cpus} CPUs · "
        f"cpubound {__version__} · {engine.name if engine else 'no engine'} "
        f"{engine.version if engine else ''} · noise {profile.noise.verdict} "
        f"(±{profile.noise.spread * 100:.0f} %)\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
