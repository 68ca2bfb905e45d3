"""The replay of published rates holds rows out, and no machine helps to predict itself."""

from __future__ import annotations

import csv

import pytest

from calibrate.published import _splits, main, read_series, replay
from calibrate.type_factors import Factors, estimate_factors
from cpubound.cost.kernel_priors import kernel_priors

COLUMNS = (
    *("series", "cpu", "arch_isa", "threads", "engine", "build", "model", "kind", "quant"),
    *("file_GiB", "depth_tokens", "kv_type", "flash_attn", "tg_tok_s", "note"),
)


def law(threads: int, gigabytes: float, speed: float = 12.0, limit: float = 40.0) -> float:
    return ((speed * threads) ** -3 + limit**-3) ** (-1 / 3) / gigabytes


@pytest.fixture
def rates(tmp_path):
    rows = [
        ("A", "Ryzen X", quant, threads, law(threads, gigabytes))
        for quant, gigabytes in (("Q4_K_M", 4.6), ("Q8_0", 8.0))
        for threads in (1, 2, 4, 8)
    ]
    rows += [("B", "Ryzen Y", "Q4_K_M", threads, law(threads, 4.6, 10)) for threads in (1, 2, 4)]
    path = tmp_path / "rates.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for series, cpu, quant, threads, rate in rows:
            writer.writerow(
                {
                    "series": series,
                    "cpu": cpu,
                    "arch_isa": "x86 AVX2",
                    "threads": threads,
                    "engine": "llama.cpp",
                    "model": "Llama-3.1-8B-Instruct",
                    "kind": "dense",
                    "quant": quant,
                    "depth_tokens": 0,
                    "kv_type": "f16",
                    "flash_attn": "off",
                    "tg_tok_s": rate,
                }
            )
        writer.writerow({"series": "C", "cpu": "?", "model": "unheard-of", "threads": 4})
    return path


def test_rows_become_series_and_what_is_not_known_is_counted(rates):
    series, left_out = read_series(rates)
    assert [(one.name, one.isa, len(one.rows)) for one in series] == [
        ("A", "x86", 8),
        ("B", "x86", 3),
    ]
    assert left_out == 1


def test_a_series_that_follows_the_law_is_predicted(rates):
    series, _ = read_series(rates)
    held = replay(series[0], kernel_priors("x86"))
    assert len(held) == 12
    assert sorted(abs(h.error) for h in held)[6] < 0.06


def test_splits_are_fixed_by_their_seed_and_leave_rows_to_fit():
    assert _splits(9, 6, "1 A") == _splits(9, 6, "1 A") != _splits(9, 6, "2 A")
    assert all(len(out) == 3 for out in _splits(9, 6, "1 A"))
    assert _splits(3, 6, "1 A") == [[0], [1], [2]]


def test_the_table_and_its_summary_are_printed(rates, capsys):
    assert main(["--rates", str(rates), "--repeats", "2"]) == 0
    out = capsys.readouterr().out
    assert "2 series; 7 held-out rows: median |error|" in out
    assert "1 rows left out" in out
    assert out.split("\n")[0].split()[:6] == ["series", "CPU", "engine", "rows", "held", "out"]


def test_factors_are_free_of_each_machines_speed():
    sources = [
        Factors(source=name, by_type={"Q4_K": (speed, 0.02), "Q8_0": (speed - 0.7, 0.02)})
        for name, speed in (("slow", 1.0), ("fast", 3.0))
    ]
    factors = estimate_factors(sources)
    ratio = factors["Q4_K"][0] / factors["Q8_0"][0]
    assert 1.8 < ratio < 2.02
    assert factors["Q4_K"][1] >= 0.15
