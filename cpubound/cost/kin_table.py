"""The machines that estimates learn from: ``kin.toml``, as points and rows of ``cost.kin``.

Medians of public benchmark data of Spare Cores (github.com/SpareCores/sc-inspector-data), CC BY-SA
4.0, with the variances that were fitted to them; ``python -m calibrate servers`` makes it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from cpubound.cost.kin import Form, Kin, Points, Rows, Spread, linearise
from cpubound.cost.machine_form import DecodeForm, PromptForm
from cpubound.package_data import read_toml

FORMS: Mapping[str, Form] = {"decode": DecodeForm(), "prompt": PromptForm()}
# Stands for the size of a model in rows that are read bandwidths: no model is so small.
NO_MODEL = 1.0

Array = Any  # numpy.ndarray
AskedRow = tuple[int, Sequence[float], float, float | None]


class Kinship(msgspec.Struct, frozen=True, kw_only=True):
    """What a CPU's name tells of its relatives; empty where it does not tell.

    ``cluster_cores`` share a link to memory. Virtual CPUs that a hypervisor scatters over clusters
    (it then hides the CPU's model) have one link each.
    """

    name: str
    micro_architecture: str
    family: str
    architecture: str
    cluster_cores: int | None = None
    is_scattered: bool = False

    def links(self, threads: int, cores: int) -> float:
        """Return what brings data from memory to threads on a machine of so many cores.

        A cluster's link brings about what two cores do that reach memory by themselves.
        """
        if self.cluster_cores is None or self.is_scattered:
            return float(threads)
        return 2.0 * min(threads, math.ceil(cores / self.cluster_cores))


class KinSpread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The variances of one form as standard deviations, and how wide its intervals are.

    ``widths``: by what is known beside the name, how many standard deviations of the logarithm of
    the seconds nine of ten left-out machines stay within: faster and slower. ``read_error``: how
    far a machine's read bandwidth may be off as it is told.
    """

    levels: tuple[tuple[tuple[float, float], ...], ...]
    server: tuple[float, ...]
    noise: tuple[float, float, float]
    read_error: float
    widths: Mapping[str, tuple[float, float]]

    def spread(self) -> Spread:
        """Return the variances as arrays."""
        import numpy as np

        return Spread(
            levels=np.array(self.levels) ** 2,
            server=np.array(self.server) ** 2,
            noise=np.array(self.noise) ** 2,
        )


class KinModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model whose seconds are kept: its bytes and the amounts of both forms."""

    weight_bytes: float
    decode: tuple[float, ...]
    prompt: tuple[float, ...]


class KinPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Medians of a CPU's servers at a thread count: seconds of each model, 0 where there are none.

    ``*_loose`` is how much further than others each row is off (a variance ratio, read bandwidth
    last), ``*_parameters`` where the form is linearised.
    """

    threads: int
    servers: int
    decode: tuple[float, ...]
    prompt: tuple[float, ...]
    read_bytes_per_s: float = 0.0
    decode_loose: tuple[float, ...] = ()
    prompt_loose: tuple[float, ...] = ()
    decode_parameters: tuple[float, ...] = ()
    prompt_parameters: tuple[float, ...] = ()


class KinCpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CPU's points; ``scale`` is how much more than others it departs from its kin, by form."""

    kinship: Kinship
    scale: Mapping[str, float]
    points: tuple[KinPoint, ...]


class KinTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that ``kin.toml`` holds."""

    made: str
    source: str
    license: str
    command: str
    spread: Mapping[str, KinSpread]
    models: Mapping[str, KinModel]
    cpus: tuple[KinCpu, ...]


@cache
def read_kin_table() -> KinTable:
    """Read ``kin.toml``."""
    return msgspec.convert(read_toml("cost", "kin.toml"), KinTable)


def read_error(kind: str) -> float:
    """Return how far a machine's read bandwidth may be off as it is told, in its logarithm."""
    return read_kin_table().spread[kind].read_error


def widths(kind: str) -> Mapping[str, tuple[float, float]]:
    """Return how many standard deviations an interval spans, by what is known of a machine."""
    return read_kin_table().spread[kind].widths


@cache
def kin_of(kind: str, family: str, architecture: str) -> Kin:
    """Return the nearest kin there are of a family: itself, its architecture, or all machines."""
    table = read_kin_table()
    for field, wanted in (("family", family), ("architecture", architecture)):
        chosen = [cpu for cpu in table.cpus if getattr(cpu.kinship, field) == wanted]
        if chosen:
            break
    else:
        chosen = list(table.cpus)
    points, rows, start = table_points(kind, chosen, list(table.models.values()))
    return linearise(FORMS[kind], table.spread[kind].spread(), points, rows, start)


def table_points(
    kind: str, cpus: Sequence[KinCpu], models: Sequence[KinModel]
) -> tuple[Points, Rows, Array]:
    """Return the points and rows of some CPUs, and the parameters where they are linearised."""
    import numpy as np

    steps: list[AskedRow] = []
    read: list[tuple[int, float]] = []
    loose: list[float] = []
    read_loose: list[float] = []
    parts = [(cpu, point) for cpu in cpus for point in cpu.points]
    for place, (_, point) in enumerate(parts):
        looseness = getattr(point, f"{kind}_loose") or (1.0,) * (len(models) + 1)
        for model, seconds, off in zip(models, getattr(point, kind), looseness, strict=False):
            if seconds:
                steps.append((place, getattr(model, kind), model.weight_bytes, seconds))
                loose.append(off)
        if kind == "decode" and point.read_bytes_per_s:
            read.append((place, point.read_bytes_per_s))
            read_loose.append(looseness[-1])
    rows = make_rows(FORMS[kind], steps, read, [*loose, *read_loose])
    points = make_points(
        [
            (cpu.kinship, p.threads, cpu.kinship.links(p.threads, p.threads), p.servers, scale)
            for cpu, p in parts
            for scale in (cpu.scale[kind],)
        ]
    )
    return points, rows, np.array([getattr(p, f"{kind}_parameters") for _, p in parts])


def machine_points(kinship: Kinship, threads: Sequence[int], cores: int) -> Points:
    """Return the points of one machine at thread counts."""
    return make_points([(kinship, t, kinship.links(t, cores), 1, 1.0) for t in threads])


def make_points(parts: Sequence[tuple[Kinship, int, float, int, float]]) -> Points:
    """Return points from kinship, threads, links, servers and scale of each."""
    import numpy as np

    return Points(
        family=np.array([kinship.family for kinship, *_ in parts]),
        micro_architecture=np.array([kinship.micro_architecture for kinship, *_ in parts]),
        name=np.array([kinship.name for kinship, *_ in parts]),
        threads=np.array([float(threads) for _, threads, *_ in parts]),
        links=np.array([links for _, _, links, *_ in parts]),
        servers=np.array([float(servers) for *_, servers, _ in parts]),
        scale=np.array([scale for *_, scale in parts]),
    )


def make_rows(
    form: Form,
    steps: Sequence[AskedRow],
    read: Sequence[tuple[int, float]] = (),
    looseness: Sequence[float] | None = None,
) -> Rows:
    """Return rows: steps as (point, amounts, bytes of the model, seconds or None), then bandwidths.

    ``read`` are (point, bytes per second).
    """
    import numpy as np

    values = [math.nan if seconds is None else math.log(seconds) for *_, seconds in steps]
    return Rows(
        point=np.array([s[0] for s in steps] + [place for place, _ in read], dtype=int),
        amounts=np.array([tuple(s[1]) for s in steps] + [(1.0,) * form.amounts] * len(read)),
        log_bytes=np.log2([s[2] for s in steps] + [NO_MODEL] * len(read)),
        is_bandwidth=np.array([False] * len(steps) + [True] * len(read)),
        log_value=np.array(values + [math.log(rate) for _, rate in read]),
        looseness=np.ones(len(steps) + len(read)) if looseness is None else np.array(looseness),
    )
