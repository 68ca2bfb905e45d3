"""The choice of threads replayed on published series: fit some counts, choose among the others.

A group is one model, file type and setting of a series that was published at four or more thread
counts. Every second count is taken out in turn, the other rows of the series are fitted (with
priors from other CPUs), and the rule of ``tune`` chooses among those taken out: the fewest
threads within 3 % of the best predicted. The regret is what that choice loses against the best
published row among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.published import PublishedRow, Series, priors_without, read_series
from cpubound import stats
from cpubound.advise.tune.choice import prefer_even
from cpubound.cost.kernel_priors import KernelPriors
from cpubound.cost.predict import predict_decode
from cpubound.cost.thread_choice import TOLERANCE
from cpubound.engine.values import EngineIdentity
from cpubound.measuring.from_rates import profile_from_rates, rate_row
from cpubound.report.tables import Table, render_table

MIN_COUNTS = 4
FOLDS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """One choice among published rows that the fit never saw."""

    series: str
    cpu: str
    model: str
    rates: dict[int, float]  # thread count -> published tok/s, of the rows chosen among
    chosen: int

    @property
    def regret_tokens_per_s(self) -> float:
        return max(self.rates.values()) - self.rates[self.chosen]

    @property
    def regret(self) -> float:
        """The loss as a share of the best."""
        return self.regret_tokens_per_s / max(self.rates.values())

    @property
    def most_threads_regret(self) -> float:
        """What the most threads would lose: the choice of whoever takes them all."""
        return 1 - self.rates[max(self.rates)] / max(self.rates.values())


def print_replay(path: Path, style: str) -> int:
    """Replay every series of a file and print the table."""
    series, _ = read_series(path)
    found = [
        replay
        for one in series
        for rows in groups(one)
        for replay in replay_group(one, rows, priors_without(one, series, ()))
    ]
    print(render_table(replay_table(found), style))
    print(f"\n{replay_summary(found)}")
    return 0


def groups(series: Series) -> Iterator[list[PublishedRow]]:
    """Yield the rows of one model and setting that were published at enough thread counts."""
    found: dict[tuple[object, ...], list[PublishedRow]] = {}
    for row in series.rows:
        t = row.traffic
        key = (
            row.model,
            row.quant,
            t.setting.depth_tokens,
            t.setting.kv_type_k,
            t.setting.flash_attn,
        )
        found.setdefault(key, []).append(row)
    for rows in found.values():
        if len({row.threads for row in rows}) >= MIN_COUNTS:
            yield rows


def replay_group(
    series: Series, rows: Sequence[PublishedRow], priors: KernelPriors
) -> Iterator[Replay]:
    """Choose among every second thread count by a fit of all other rows of the series."""
    counts = sorted({row.threads for row in rows})
    for fold in range(FOLDS):
        among = counts[fold::FOLDS]
        candidates = [row for row in rows if row.threads in among]
        profile = profile_from_rates(
            [
                rate_row(row.traffic, row.threads, row.tokens_per_s)
                for row in series.rows
                if row not in candidates
            ],
            cpu_model=series.cpu,
            engine=EngineIdentity(name=series.engine, version="unknown", build="unknown"),
            source=series.name,
            priors=priors,
        )
        traffic = rows[0].traffic
        predictions = [predict_decode(profile, traffic, threads) for threads in among]
        yield Replay(
            series=series.name,
            cpu=series.cpu,
            model=f"{rows[0].model} {rows[0].quant}",
            rates={
                threads: stats.median([r.tokens_per_s for r in candidates if r.threads == threads])
                for threads in among
            },
            chosen=prefer_even(predictions, traffic).setting.threads,
        )


def replay_table(found: Sequence[Replay]) -> Table:
    """Return a row for each choice."""
    columns = ("series", "CPU", "model", "chosen among", "best", "chosen", "regret", "most threads")
    rows = tuple(
        (
            r.series,
            r.cpu,
            r.model,
            ", ".join(f"{threads}: {rate:.3g}" for threads, rate in sorted(r.rates.items())),
            f"{max(r.rates, key=lambda threads: r.rates[threads])}",
            str(r.chosen),
            f"{r.regret_tokens_per_s:.2f} tok/s ({r.regret * 100:.1f} %)",
            f"{r.most_threads_regret * 100:.1f} %",
        )
        for r in found
    )
    return Table(columns=columns, rows=rows, right=frozenset({"best", "chosen", "most threads"}))


def replay_summary(found: Sequence[Replay]) -> str:
    """Say how often the choice was within 3 % of the best, beside taking the most threads."""
    regrets = [r.regret for r in found]
    most = [r.most_threads_regret for r in found]
    return (
        f"{len(found)} choices, of the best published row: {_regrets(regrets)}. "
        f"The most threads instead: {_regrets(most)}."
    )


def _regrets(regrets: Sequence[float]) -> str:
    within = sum(regret <= TOLERANCE for regret in regrets)
    return (
        f"{within} within 3 %, median regret {stats.median(regrets) * 100:.1f} %, "
        f"worst {max(regrets) * 100:.1f} %"
    )
