"""Servers are estimated from others, and no CPU helps to judge itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from calibrate import servers as laboratory
from calibrate.servers_judge import FOLDS, Case, judge, servers_by_cpu
from calibrate.servers_rows import group_servers, kin_models, read_servers
from cpubound.cost.kin_table import KinTable, table_points
from cpubound.package_data import parse_toml

ROWS = Path(__file__).parents[1] / "data" / "servers" / "servers.csv.xz"


@pytest.fixture(scope="module")
def servers():
    return read_servers(ROWS)


def test_a_server_holds_the_seconds_of_a_token_and_of_a_prompt(servers) -> None:
    found = next(s for s in servers if "9V45" in s.cpu and s.threads == 8)
    assert len(servers) == 10
    assert 40e9 < found.read_bytes_per_s < 60e9
    # 4.0 GB of the 7B model at about 52 GB/s.
    assert found.decode[3] == pytest.approx(4.0 / 52, rel=0.1)
    assert found.decode[5] is None and found.prompt[0] is None


def test_models_amount_to_what_llama_bench_says_of_their_files() -> None:
    models = kin_models()
    # model_size of the rows less the token table, which a token reads one row of.
    assert models["smollm2-135m"].weight_bytes == 103_668_480
    assert models["gemma-2b"].weight_bytes == 1_489_055_744
    assert models["llama-2-7b"].weight_bytes == 4_080_263_168 - 32_000 * 4096 * 144 // 256


def test_medians_are_of_a_cpu_at_a_thread_count(servers) -> None:
    cpus = group_servers(servers)
    assert [cpu.kinship.micro_architecture for cpu in cpus].count("zen5") == 2
    for cpu in cpus:
        assert [point.threads for point in cpu.points] == [8, 16]
    points, rows, _ = table_points("decode", cpus, list(kin_models().values()))
    assert len(points.threads) == 10
    assert np.isfinite(rows.log_value).all()


def test_a_left_out_cpu_changes_nothing_of_what_is_expected_of_it(servers) -> None:
    models, slow = list(kin_models().values()), []
    for server in servers:
        seconds = tuple(None if s is None else 3 * s for s in server.prompt)
        slow.append(server if "9V45" not in server.cpu else replace(server, prompt=seconds))
    expected = []
    for rows in (servers, slow):
        cases, _ = judge("prompt", group_servers(rows), models, rows)
        expected.append([c.expected for c in cases if c.cpu == "EPYC 9V45" and c.told == "name"])
    assert expected[0] and expected[0] == pytest.approx(expected[1])


def test_widths_come_from_the_cpus_of_other_folds() -> None:
    def case(cpu: str, far: float) -> Case:
        return Case(
            told="name",
            doubt=0.0,
            cpu=cpu,
            threads=8,
            model=3,
            observed=far,
            expected=0.0,
            deviation=1.0,
        )

    cpus = [f"cpu {place}" for place in range(FOLDS)]
    cases = [case(cpu, far) for cpu in cpus for far in (-1.0, 1.0)]
    cases += [case(cpus[0], far) for far in (-9.0, 9.0)]
    widths = laboratory.fold_widths(cases)["name"]
    assert widths[cpus[0]] == (1.0, 1.0)
    assert widths[cpus[1]][1] > 1.0
    assert laboratory.is_inside(cases[0], widths[cpus[0]])
    assert not laboratory.is_inside(cases[-1], widths[cpus[0]])


def test_the_command_prints_the_marks_and_writes_what_the_package_reads(tmp_path, capsys) -> None:
    path = tmp_path / "kin.toml"
    assert laboratory.main([str(ROWS), "--write", str(path)]) == 0
    out = capsys.readouterr().out
    assert "name, threads, read bandwidth" in out and "two rows (135M, 7B)" in out
    assert "Spare Cores" in out and "CC BY-SA" in out
    text = path.read_text(encoding="utf-8")
    table = msgspec.convert(parse_toml(text), KinTable)
    assert "CC BY-SA 4.0" in text and table.license == "CC BY-SA 4.0"
    assert len(table.cpus) == 5 and set(table.spread) == {"decode", "prompt"}
    assert all(len(p.decode_parameters) == 5 for cpu in table.cpus for p in cpu.points)


def test_servers_are_named_as_the_table_of_cpus_names_them(servers) -> None:
    assert set(servers_by_cpu(servers)) == {
        *("EPYC 9R14", "EPYC 9R45", "EPYC 9V45"),
        *("Xeon Platinum 8370C", "Xeon Platinum 8375C"),
    }
