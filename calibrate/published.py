"""Predict machines we never had: fit some published rates of a series, predict the others.

    python -m calibrate published --rates published-rates.csv

A series is the rows of one CPU, engine, build and flash-attention setting. A third of its rows,
drawn with a fixed seed, is held out, several times over; of two or three rows each in turn. The
priors come from the series of other CPUs, so that no machine helps to predict itself.
``--priors`` prints the tables of ``cpubound/cost/kernel_priors.toml`` instead.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.type_factors import (
    Factors,
    estimate_factors,
    factors_of_profile,
    factors_of_rows,
)
from cpubound import stats
from cpubound.cost.kernel_priors import KernelPriors, isa_of_cpu, kernel_priors, read_priors
from cpubound.cost.predict import predict_decode
from cpubound.engine.values import EngineIdentity
from cpubound.errors import CpuboundError
from cpubound.measuring.from_rates import profile_from_rates, rate_row
from cpubound.model.catalog import catalog_model
from cpubound.model.ftype import file_type
from cpubound.model.names import catalog_name_in, file_type_in
from cpubound.model.quant import quant_type
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelTraffic, WeightRead
from cpubound.profile.file import load_profile
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting
from cpubound.units import format_percent

HELD_SHARE = 3
# Runs of llama-bench and the like generate 128 tokens: half of them lie in the cache.
MEAN_TOKENS = 64
# Of a file whose model is not known, the bytes that a token reads: all but the token table.
READ_SHARE = 0.97
COLUMNS = 4096
PRODUCTS = 224  # of a model of 32 layers


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRow:
    """One published rate with what a step of its model moves."""

    model: str
    quant: str
    threads: int
    tokens_per_s: float
    traffic: ModelTraffic


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Series:
    """Rows of one machine and engine that one profile should explain."""

    name: str
    cpu: str
    isa: str | None
    engine: str
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A row that was held out, and its prediction."""

    row: PublishedRow
    type_seen: bool  # whether a row of its file type was among the fitted ones
    error: float  # predicted / published − 1
    inside: bool
    width: float


def main(argv: Sequence[str]) -> int:
    """Run the replay and print its table."""
    options = _parse(argv)
    series, left_out = read_series(options.rates)
    own = [factors for path in options.profile for factors in _profile_factors(path)]
    if options.priors:
        for isa in ("x86", "arm"):
            print(_toml(isa, _factors(isa, series, own)))
        return 0
    results: list[tuple[Series, list[Held]]] = []
    for one in series:
        if len(one.rows) < 2:
            continue
        priors = priors_without(one, series, own)
        held = replay(one, priors, repeats=options.repeats, seed=options.seed)
        results.append((one, held))
        print(f"{one.name}: {len(held)} held out", file=sys.stderr)
    print(render_table(_table(results), options.format))
    print(_summary([held for _, rows in results for held in rows], len(results)))
    if left_out:
        print(f"{left_out} rows left out: a GPU took part, or threads or the model are not told.")
    return 0


def read_series(path: Path) -> tuple[list[Series], int]:
    """Read the CSV and return its series, and how many rows cannot be predicted.

    Two rows of one series with the same settings are runs of two machines, builds or modes:
    then the note distinguishes them, and each is a series of its own.
    """
    groups: dict[tuple[str, ...], list[tuple[str, PublishedRow]]] = {}
    isas: dict[tuple[str, ...], str | None] = {}
    left_out = 0
    with path.open(newline="", encoding="utf-8") as file:
        for entry in csv.DictReader(file):
            row = _published_row(entry)
            if row is None:
                left_out += 1
                continue
            fields = ("series", "cpu", "engine", "build", "flash_attn")
            key = tuple(entry.get(name) or "" for name in fields)
            groups.setdefault(key, []).append((entry.get("note") or "", row))
            isas[key] = _isa(entry)
    found = []
    for key, rows in groups.items():
        for mode, mine in _split_by_note(rows).items():
            name = key[0] + (f", {mode}" if mode else "")
            found.append(
                Series(name=name, cpu=key[1], isa=isas[key], engine=key[2], rows=tuple(mine))
            )
    return found, left_out


def replay(series: Series, priors: KernelPriors, *, repeats: int = 6, seed: int = 1) -> list[Held]:
    """Hold rows of a series out, fit the others, and predict what was held out."""
    held = []
    for out in _splits(len(series.rows), repeats, f"{seed} {series.name}"):
        profile = profile_from_rates(
            [
                rate_row(row.traffic, row.threads, row.tokens_per_s)
                for place, row in enumerate(series.rows)
                if place not in out
            ],
            cpu_model=series.cpu,
            engine=EngineIdentity(name=series.engine, version="unknown", build="unknown"),
            source=series.name,
            priors=priors,
        )
        for place in out:
            row = series.rows[place]
            fitted = {r.quant for other, r in enumerate(series.rows) if other not in out}
            prediction = predict_decode(profile, row.traffic, row.threads)
            held.append(
                Held(
                    row=row,
                    type_seen=row.quant in fitted,
                    error=prediction.tokens_per_s / row.tokens_per_s - 1,
                    inside=prediction.low <= row.tokens_per_s <= prediction.high,
                    width=(prediction.high - prediction.low) / prediction.tokens_per_s,
                )
            )
    return held


def _splits(rows: int, repeats: int, seed: str) -> list[list[int]]:
    if rows < HELD_SHARE + 1:
        return [[place] for place in range(rows)]
    order = random.Random(seed)
    return [order.sample(range(rows), rows // HELD_SHARE) for _ in range(repeats)]


def _published_row(entry: Mapping[str, str | None]) -> PublishedRow | None:
    threads = re.match(r"\d+", entry.get("threads") or "")
    rate = entry.get("tg_tok_s") or ""
    traffic = _traffic(entry)
    told = " ".join((entry.get("kind") or "", entry.get("note") or "", entry.get("engine") or ""))
    if threads is None or not rate or traffic is None or re.search(r"GPU|\+ \d{4}Ti|CUDA", told):
        return None
    return PublishedRow(
        model=entry.get("model") or "",
        quant=entry.get("quant") or "",
        threads=int(threads.group()),
        tokens_per_s=float(rate),
        traffic=traffic,
    )


def _traffic(entry: Mapping[str, str | None]) -> ModelTraffic | None:
    type_name = file_type_in(re.sub(r"\(.*?\)", "", entry.get("quant") or ""))
    if type_name is None:
        return None
    name = catalog_name_in(entry.get("model") or "")
    kv_type = (entry.get("kv_type") or "f16").lower()
    depth = int(entry.get("depth_tokens") or 0) + MEAN_TOKENS
    flash_attn = entry.get("flash_attn") in ("on", "auto")
    try:
        if name is None:
            return _traffic_of_size(entry, type_name, depth)
        return compute_traffic(
            catalog_model(name, type_name),
            Setting(
                depth_tokens=depth, kv_type_k=kv_type, kv_type_v=kv_type, flash_attn=flash_attn
            ),
        )
    except CpuboundError:
        return None


def _traffic_of_size(
    entry: Mapping[str, str | None], type_name: str, depth: int
) -> ModelTraffic | None:
    """Take a model of which only the file's size is known for matrices of that size."""
    size = float(entry.get("file_GiB") or 0) * 2**30
    if not size:
        return None
    quant = file_type(type_name).default_type
    n_bytes = round(size * READ_SHARE)
    matrices = WeightRead(
        role="ffn",
        kind="matmul",
        type=quant,
        rows=n_bytes // quant_type(quant).row_bytes(COLUMNS),
        columns=COLUMNS,
        count=PRODUCTS,
        n_bytes=n_bytes,
    )
    return ModelTraffic(
        setting=Setting(depth_tokens=depth, flash_attn=False),
        model=entry.get("model") or "",
        architecture="unknown",
        quant_label=type_name,
        parameters=round(8 * size / quant_type(quant).bits_per_weight),
        active_parameters=round(8 * size / quant_type(quant).bits_per_weight),
        file_bytes=round(size),
        weights=(matrices,),
        attention=(),
        kv_write_bytes=0,
        state_read_bytes=0,
        state_write_bytes=0,
        logits=0,
        layers=1,
        resident_bytes=round(size),
    )


def _isa(entry: Mapping[str, str | None]) -> str | None:
    told = (entry.get("arch_isa") or "").lower()
    return {"x86": "x86", "aar": "arm", "arm": "arm"}.get(told[:3]) or isa_of_cpu(entry.get("cpu"))


def _split_by_note(rows: Sequence[tuple[str, PublishedRow]]) -> dict[str, list[PublishedRow]]:
    settings = [
        (r.model, r.quant, r.threads, r.traffic.setting.depth_tokens, r.traffic.setting.kv_type_k)
        for _, r in rows
    ]
    if len(set(settings)) == len(settings):
        return {"": [row for _, row in rows]}
    found: dict[str, list[PublishedRow]] = {}
    for note, row in rows:
        found.setdefault(re.split(r"[:;(]", note)[0].strip(), []).append(row)
    return found


def priors_without(one: Series, series: Sequence[Series], own: Sequence[Factors]) -> KernelPriors:
    """Return the priors that the series of other CPUs give."""
    tables = dict(read_priors())
    others = [other for other in series if other.cpu != one.cpu]
    for isa in ("x86", "arm"):
        tables[isa] = _factors(isa, others, own)
    return kernel_priors(one.isa, tables)


def _factors(
    isa: str, series: Sequence[Series], own: Sequence[Factors]
) -> dict[str, tuple[float, float]]:
    mine = own if isa == "x86" else ()
    return estimate_factors([*mine, *_series_factors(series, isa)])


_FACTORS: dict[Series, Factors] = {}


def _series_factors(series: Sequence[Series], isa: str) -> list[Factors]:
    """Fit each series of an instruction set alone, once."""
    for one in series:
        if one not in _FACTORS:
            rows = [rate_row(row.traffic, row.threads, row.tokens_per_s) for row in one.rows]
            _FACTORS[one] = factors_of_rows(f"{one.name}, {one.engine}", rows)
    return [_FACTORS[one] for one in series if one.isa == isa]


def _table(results: Sequence[tuple[Series, Sequence[Held]]]) -> Table:
    return Table(
        columns=(
            "series",
            "CPU",
            "engine",
            "rows",
            "held out",
            "median",
            "90th",
            "worst",
            "inside",
            "worst row",
        ),
        rows=tuple(_result_row(series, held) for series, held in results),
        right=frozenset({"rows", "held out", "median", "90th", "worst", "inside"}),
    )


def _result_row(series: Series, held: Sequence[Held]) -> tuple[str, ...]:
    errors = [abs(h.error) for h in held]
    worst = max(held, key=lambda h: abs(h.error))
    return (
        series.name,
        series.cpu,
        series.engine,
        str(len(series.rows)),
        str(len(held)),
        f"{stats.median(errors) * 100:.1f} %",
        f"{stats.quantile(errors, 0.9) * 100:.0f} %",
        format_percent(worst.error, 0),
        f"{sum(h.inside for h in held) / len(held) * 100:.0f} %",
        f"{worst.row.model} {worst.row.quant}, {worst.row.threads} threads",
    )


def _summary(held: Sequence[Held], series: int) -> str:
    inside = sum(h.inside for h in held) / len(held)
    width = stats.median([h.width for h in held])
    seen, unseen = ([h for h in held if h.type_seen is known] for known in (True, False))
    lines = [f"\n{series} series; {_errors('held-out rows', held)}"]
    lines += [_errors("of a file type that was fitted at other settings", seen)] if seen else []
    lines += [_errors("of a file type that no fitted row shows", unseen)] if unseen else []
    lines.append(
        f"{inside * 100:.0f} % inside the 90 % interval, whose median width is "
        f"{width * 100:.0f} % of the prediction."
    )
    return "\n".join(lines)


def _errors(name: str, held: Sequence[Held]) -> str:
    errors = [abs(h.error) for h in held]
    return (
        f"{len(held)} {name}: median |error| {stats.median(errors) * 100:.1f} %, 90th percentile "
        f"{stats.quantile(errors, 0.9) * 100:.1f} %, worst {max(errors) * 100:.0f} %."
    )


def _profile_factors(path: Path) -> Iterator[Factors]:
    yield factors_of_profile(str(path), load_profile(path))


def _toml(isa: str, factors: Mapping[str, tuple[float, float]]) -> str:
    ordered = sorted(factors.items(), key=lambda item: -item[1][0])
    lines = [f"{name} = [{value:.2f}, {error:.2f}]" for name, (value, error) in ordered]
    return f"[{isa}]\n" + "\n".join(lines) + "\n"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m calibrate published", description=__doc__)
    parser.add_argument("--rates", type=Path, required=True, help="a CSV of published rates")
    parser.add_argument("--repeats", type=int, default=6, help="draws of held-out rows  [6]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table")
    parser.add_argument("--priors", action="store_true", help="print the tables of priors")
    parser.add_argument(
        "--profile",
        type=Path,
        action="append",
        default=[],
        help="an x86 profile measured through llama.cpp whose types join the priors",
    )
    return parser.parse_args(argv)
