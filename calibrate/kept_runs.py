"""Runs of ``accuracy`` that are kept: a calibration and what was observed after it.

A run is one compressed file under ``calibrate/runs/`` whose name says the CPU and the day.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import msgspec

from cpubound.cost.engine_rates import derive_tables
from cpubound.cost.predict import predict_decode
from cpubound.cost.transfer import Transfer
from cpubound.cost.values import Prediction
from cpubound.model.resolve import resolve_model
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelTraffic
from cpubound.package_data import parse_toml
from cpubound.profile.file import decode_profile
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting
from cpubound.temporary import write_file

RUNS_FOLDER = Path(__file__).with_name("runs")
SETS_FILE = Path(__file__).with_name("held_out.toml")
SETS = ("development", "interval", "judged")
MAX_RUN_BYTES = 64 * 2**20


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


class KeptCell(msgspec.Struct, frozen=True, kw_only=True):
    """One held-out cell as it was observed: ``runs_s`` are the medians of its single runs.

    ``set`` is the one of ``SETS`` that the cell belongs to, ``tokens`` the length of a run. A
    trained model (``is_real``) is named as the catalogue names its shapes and types.
    """

    set: str
    model: str
    threads: int
    depth_tokens: int
    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    tokens: int
    observed_tokens_per_s: float
    runs_s: tuple[float, ...]
    noise_floor: float | None = None
    is_real: bool = False

    def traffic(self) -> ModelTraffic:
        """Return what a step in the middle of the cell's runs moves."""
        return compute_traffic(
            resolve_model(self.model),
            Setting(
                depth_tokens=self.depth_tokens + self.tokens // 2,
                kv_type_k=self.kv_type_k,
                kv_type_v=self.kv_type_v,
                flash_attn=self.flash_attn,
            ),
        )


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """One calibration with the cells that were observed after it."""

    name: str
    profile: MachineProfile
    cells: tuple[KeptCell, ...]

    @property
    def machine(self) -> str:
        """The kind of CPU: vendor, family and model."""
        return self.profile.machine.cpu_identity or self.profile.machine.cpu_model or "unknown"


class JudgedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A kept cell with what a prediction says of it."""

    run: str
    machine: str
    cell: KeptCell
    prediction: Prediction

    @property
    def error(self) -> float:
        """Predicted over observed, less one."""
        return self.prediction.tokens_per_s / self.cell.observed_tokens_per_s - 1

    @property
    def is_inside(self) -> bool:
        return self.prediction.low <= self.cell.observed_tokens_per_s <= self.prediction.high

    @property
    def width(self) -> float:
        """Width of the interval over the predicted rate."""
        return (self.prediction.high - self.prediction.low) / self.prediction.tokens_per_s


def load_groups(path: Path = SETS_FILE) -> dict[str, list[Group]]:
    """Read the groups of cells by set."""
    data = parse_toml(path.read_text(encoding="utf-8"))
    return {name: msgspec.convert(data.get(name, []), list[Group]) for name in SETS}


def write_run(run: KeptRun, path: Path) -> None:
    """Write a run as one compressed file, without the rate tables, which its probes give."""
    profile = run.profile
    if profile.engine is not None:
        engine = msgspec.structs.replace(profile.engine, tables=())
        profile = msgspec.structs.replace(profile, engine=engine)
    data = msgspec.json.encode(msgspec.structs.replace(run, profile=profile))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lzma.compress(data, preset=9))


def read_run(path: Path) -> KeptRun:
    """Read a run, its rate tables derived anew from its own probes."""
    with lzma.open(path) as file:
        data = file.read(MAX_RUN_BYTES)
    raw = msgspec.json.decode(data, type=_RawRun)
    profile = decode_profile(bytes(raw.profile), str(path))
    return KeptRun(name=raw.name, profile=refit(profile), cells=raw.cells)


class _RawRun(msgspec.Struct):
    name: str
    profile: msgspec.Raw
    cells: tuple[KeptCell, ...]


def refit(profile: MachineProfile) -> MachineProfile:
    """Return the profile with rate tables fitted to its own probes by the present form."""
    if profile.engine is None:
        return profile
    tables, _ = derive_tables(profile.engine.probes)
    engine = msgspec.structs.replace(profile.engine, tables=tables)
    return msgspec.structs.replace(profile, engine=engine)


def read_runs(paths: Sequence[Path]) -> list[KeptRun]:
    """Read runs by file or folder; all kept ones without a path."""
    files = [
        file
        for path in (paths or [RUNS_FOLDER])
        for file in (sorted(path.glob("*.json.xz")) if path.is_dir() else [path])
    ]
    return [read_run(file) for file in files]


def judge_run(
    run: KeptRun,
    profile: MachineProfile | None = None,
    transfers: Mapping[str, Transfer] | None = None,
    sets: Sequence[str] = SETS,
) -> list[JudgedCell]:
    """Predict every cell of a run from its profile, or from another of the same machine."""
    used = run.profile if profile is None else profile
    return [
        JudgedCell(
            run=run.name,
            machine=run.machine,
            cell=cell,
            prediction=predict_decode(used, cell.traffic(), cell.threads, transfers),
        )
        for cell in run.cells
        if cell.set in sets
    ]


def runs_parser(
    name: str, description: str | None, default_set: str = "judged"
) -> argparse.ArgumentParser:
    """Return the command line of an experiment on kept runs; the experiment may add to it."""
    parser = argparse.ArgumentParser(prog=f"python -m calibrate {name}", description=description)
    parser.add_argument("runs", nargs="*", type=Path, help="files or folders; all kept by default")
    parser.add_argument("--set", choices=SETS, default=default_set, help="of cells")
    return parser


def parse_runs(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line of an experiment and refuse runs that are not there."""
    options = parser.parse_args(argv)
    missing = [path for path in options.runs if not path.exists()]
    if missing:
        parser.error(f"no run is kept there ({missing[0]}): give a file or folder of runs")
    return options
