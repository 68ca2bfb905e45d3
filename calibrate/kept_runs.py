"""What ``accuracy --out FOLDER`` left: calibrations and what was observed after each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from calibrate.accuracy import GROUPS_FILE, Group
from cpubound.cost.values import Prediction
from cpubound.model.resolve import resolve_model
from cpubound.profile.file import load_profile
from cpubound.profile.values import MachineProfile
from cpubound.validation.cells import plan_cell


@dataclass(frozen=True, kw_only=True)
class Run:
    """One calibration and what was observed after it (tok/s), in the experiment's order.

    ``seen`` are the cells of ``validate``'s document, for what was seen beside.
    """

    name: str
    profile: MachineProfile
    observed: tuple[float, ...]
    seen: tuple[dict[str, Any], ...] = ()


def parse_folders(name: str, description: str | None, argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line of an experiment on kept runs."""
    parser = argparse.ArgumentParser(prog=f"python -m calibrate {name}", description=description)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of accuracy --out")
    parser.add_argument("--groups", type=Path, default=GROUPS_FILE, help="TOML of the cells")
    parser.add_argument("--real", nargs="*", default=[], help="the real models that were judged")
    options = parser.parse_args(argv)
    for folder in options.folders:
        if not (folder / "validation-0.json").is_file():
            parser.error(f"no run is kept there ({folder}): give a folder of accuracy --out")
    return options


def read_runs(folder: Path) -> list[Run]:
    """Read the runs of a folder."""
    found = []
    for number in range(len(list(folder.glob("validation-*.json")))):
        document = msgspec.json.decode((folder / f"validation-{number}.json").read_bytes())
        run = Run(
            name=f"{folder.name}, calibration {number}",
            profile=load_profile(folder / f"profile-{number}.json"),
            observed=tuple(cell["observed_tokens_per_s"] for cell in document["cells"]),
            seen=tuple(document["cells"]),
        )
        found.append(run)
    return found


def predict_cells(profile: MachineProfile, groups: Sequence[Group]) -> Iterator[Prediction]:
    """Predict every cell, in the experiment's order."""
    for group in groups:
        for model in group.models:
            spec = resolve_model(model)
            for setting in group.settings(profile.machine.effective_cpus):
                yield plan_cell(profile, spec, "", setting).prediction
