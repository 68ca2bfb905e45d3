"""cpubound doctor: a real process on a made-up machine."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import FakeMachine, build_server

FIELDS = {
    "schema", "cpu_model", "architecture", "logical_cpus", "online_cpus", "allowed_cpus",
    "physical_cores", "packages", "threads_per_core", "core_kinds", "numa_nodes", "caches",
    "quota_cpus", "effective_cpus", "memory_bytes", "memory_limit_bytes", "findings",
}  # fmt: skip


COMMAND = (sys.executable, "-m", "cpubound", "doctor")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def server(tmp_path: Path) -> FakeMachine:
    """Two packages of two cores, two threads each, with a quota of 2.5 CPUs."""
    fake = build_server(tmp_path / "server", packages=2, cores=2, threads=2)
    fake.write("/sys/fs/cgroup/cgroup.controllers", "cpu")
    fake.write("/sys/fs/cgroup/cpu.max", "250000 100000")
    fake.write("/proc/cpuinfo", "processor: 0\nmodel name: Made  Up\nflags: fpu lm avx2")
    return fake


def test_the_json_document_has_the_fields_of_the_contract(server: FakeMachine) -> None:
    result = run("--sysroot", server.folder, "--json", "-")
    assert result.returncode == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert set(document) >= FIELDS
    assert document["schema"] == "cpubound.machine/1"
    assert document["online_cpus"] == list(range(8))
    assert (document["physical_cores"], document["packages"]) == (4, 2)
    assert (document["quota_cpus"], document["effective_cpus"]) == (2.5, 2)
    assert document["caches"][-1]["instances"] == 2
    assert set(document["caches"][0]) >= {"level", "type", "size_bytes", "instances"}
    assert document["numa_nodes"][1] == {
        "id": 1,
        "cpus": [2, 3, 6, 7],
        "memory_bytes": 64 * 2**30,
    }
    finding = document["findings"][0]
    assert set(finding) == {
        "code", "severity", "evidence", "message", "cost_tokens_per_s", "remedy",
    }  # fmt: skip
    assert finding["code"] == "quota-below-cpus"


def test_the_screen_fits_in_100_columns_and_says_why(server: FakeMachine) -> None:
    result = run("--sysroot", server.folder)
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "Made Up" in result.stdout
    assert "2 threads at once: the CPU quota is 2.5, rounded down" in result.stdout
    assert "quota-below-cpus" in result.stdout
    assert "\N{NO-BREAK SPACE}" not in result.stdout


def test_a_machine_without_faults_is_told_so(tmp_path: Path) -> None:
    fake = build_server(tmp_path, packages=1, cores=2, threads=1)
    result = run("--sysroot", fake.folder)
    assert "Nothing found" in result.stdout


def test_csv_has_a_row_for_each_fact(server: FakeMachine) -> None:
    result = run("--sysroot", server.folder, "--format", "csv")
    rows = dict(csv.reader(io.StringIO(result.stdout)))
    assert rows["memory"].startswith("128 GiB")
    assert "warning: quota-below-cpus" in rows


def test_markdown_is_a_table(server: FakeMachine) -> None:
    lines = run("--sysroot", server.folder, "--format", "markdown").stdout.splitlines()
    assert lines[0].startswith("| fact")
    assert all(line.startswith("|") for line in lines)


def test_a_json_file_stands_beside_the_table_and_is_not_overwritten(
    server: FakeMachine, tmp_path: Path
) -> None:
    path = tmp_path / "machine.json"
    first = run("--sysroot", server.folder, "--json", path)
    assert first.returncode == 0
    assert first.stdout.startswith("CPU ")
    written = path.read_text()
    assert json.loads(written)["schema"] == "cpubound.machine/1"
    path.write_text("mine")
    again = run("--sysroot", server.folder, "--json", path)
    assert again.returncode == 2
    assert again.stdout == ""
    assert str(path) in again.stderr
    assert path.read_text() == "mine"
    assert run("--sysroot", server.folder, "--json", path, "--force").returncode == 0
    assert path.read_text() == written


def test_the_list_names_every_code(server: FakeMachine) -> None:
    text = run("--list").stdout
    assert "quota-below-cpus" in text
    assert "slow-memory" in text
    rules = json.loads(run("--list", "--json", "-").stdout)["rules"]
    assert len(rules) == len(text.splitlines()) - 1


def test_a_sysroot_that_is_missing_is_one_line_and_code_2(tmp_path: Path) -> None:
    result = run("--sysroot", tmp_path / "none")
    assert result.returncode == 2
    assert result.stderr.startswith("cpubound: error: ")
    assert result.stderr.count("\n") == 1


def test_this_machine_is_described() -> None:
    document = json.loads(run("--json", "-").stdout)
    assert 1 <= document["effective_cpus"] <= len(document["allowed_cpus"])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_a_process_bound_to_one_cpu_has_one_effective_cpu() -> None:
    cpu = max(os.sched_getaffinity(0))
    bound = subprocess.run(
        [*COMMAND, "--json", "-"],
        capture_output=True,
        check=True,
        timeout=60,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )
    document = json.loads(bound.stdout)
    assert document["allowed_cpus"] == [cpu]
    assert document["effective_cpus"] == 1
    codes = [finding["code"] for finding in document["findings"]]
    assert ("topology-mismatch" in codes) == (len(document["online_cpus"]) > 1)


def test_a_model_is_looked_at_too(server: FakeMachine) -> None:
    found = json.loads(
        run("--sysroot", server.folder, "--model", "qwen3-30b-a3b", "--json", "-").stdout
    )["findings"]
    assert "moe" in {finding["code"] for finding in found}


def test_a_file_that_is_no_model_is_a_finding(server: FakeMachine, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("<!DOCTYPE html>")
    result = run("--sysroot", server.folder, "--model", path)
    assert result.returncode == 0
    assert "error    not-gguf: this is a web page" in result.stdout
    missing = run("--sysroot", server.folder, "--model", tmp_path / "none.gguf")
    assert missing.returncode == 3
    assert "no such file" in missing.stderr
