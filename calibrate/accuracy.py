"""The held-out experiment: calibrate on probes, write the profile, then judge it on models.

No probe shares width, depth or FFN size with a model it is judged on; the profile's hash is
printed before the first observation. Several repetitions calibrate anew each time, so that
the machine's drift between calibration and use is in the error, as it is for a user.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import msgspec

from cpubound import __version__, api, stats
from cpubound.calibration.plan import load_plan
from cpubound.calibration.probes import plan_probes
from cpubound.model.resolve import resolve_model
from cpubound.model.values import ModelSpec
from cpubound.profile import MachineProfile, load_profile, save_profile
from cpubound.report.tables import render_table
from cpubound.report.validation import validation_document, validation_summary, validation_table
from cpubound.units import MIB
from cpubound.validation import Cell, Validation, summarize

STANDARD_MODELS = (
    "llama-3.2-1b:Q4_0",
    "llama-3.2-1b:Q8_0",
    "llama-3.2-1b:Q4_K_M",
    "llama-3.2-1b:Q6_K",
    "llama-3.2-1b:F16",
)
SHAPE_KEYS = ("embedding_length", "block_count", "feed_forward_length")


def main(argv: Sequence[str]) -> int:
    """Run the experiment and print its table."""
    options = _parse(argv)
    specs = [resolve_model(name) for name in options.models]
    shared = shared_shapes(specs)
    if shared:
        print("\n".join(f"not held out: {line}" for line in shared), file=sys.stderr)
        return 1
    validations = []
    for repetition in range(options.repetitions):
        profile = load_profile(options.profile) if options.profile else api.calibrate()
        print(f"profile {profile_hash(profile)[:16]} of {profile.created}", flush=True)
        validation = api.validate(
            specs,
            depths=options.depth,
            seconds=options.seconds,
            seed=options.seed + repetition,
            profile=profile,
        )
        validations.append(validation)
        _print_validation(profile, validation)
        if options.out is not None:
            _write(options.out, repetition, profile, validation)
    if len(validations) > 1:
        print(f"\nAll {len(validations)} repetitions together:")
        cells = tuple(cell for v in validations for cell in v.cells)
        print(
            validation_summary(
                msgspec.structs.replace(validations[0], cells=cells, summary=summarize(cells))
            )
        )
        print(
            f"same cell, one repetition predicting the next: "
            f"{repetition_distance([v.cells for v in validations]) * 100:.1f} % (median)"
        )
    return 0


def shared_shapes(specs: Sequence[ModelSpec]) -> list[str]:
    """Name every probe that shares width, depth or FFN size with a model."""
    probes = plan_probes(load_plan(), load_plan().probe_mib * MIB)
    found = []
    for probe in probes:
        for spec in specs:
            for key in SHAPE_KEYS:
                value = probe.spec.hyper_parameters.get(key)
                if value is not None and value == spec.hyper_parameters.get(key):
                    found.append(f"{probe.name} and {spec.name} share {key} {value}")
    return found


def profile_hash(profile: MachineProfile) -> str:
    """Return the SHA-256 of the profile as saved."""
    return hashlib.sha256(msgspec.json.encode(profile)).hexdigest()


def repetition_distance(repetitions: Sequence[Sequence[Cell]]) -> float:
    """Return the median distance of a cell's observation from its next repetition's."""
    distances = [
        abs(before.observed_tokens_per_s / after.observed_tokens_per_s - 1)
        for first, second in pairwise(repetitions)
        for before, after in zip(first, second, strict=True)
    ]
    return stats.median(distances)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate accuracy", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(STANDARD_MODELS), help="files or names")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0, help="of observing, each time")
    parser.add_argument("--depth", type=int, nargs="+", default=[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--profile", help="judge this profile instead of calibrating")
    parser.add_argument("--out", type=Path, help="folder for the profiles and JSON documents")
    return parser.parse_args(argv)


def _print_validation(profile: MachineProfile, validation: Validation) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    print(
        f"{now} · {profile.machine.cpu_model}, {profile.machine.effective_cpus} CPUs · "
        f"cpubound {__version__} · {validation.engine} · noise {profile.noise.verdict} "
        f"(±{profile.noise.spread * 100:.0f} %)\n"
    )
    print(render_table(validation_table(validation), "markdown"))
    print(f"\n{validation_summary(validation)}\n", flush=True)


def _write(folder: Path, repetition: int, profile: MachineProfile, validation: Validation) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_profile(profile, folder / f"profile-{repetition}.json")
    document = validation_document(profile, validation)
    (folder / f"validation-{repetition}.json").write_bytes(msgspec.json.encode(document))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
