"""``cpubound diagnose`` and its verb: what is said, from what, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_profile
from runs import build_case, case_of

import cpubound
from cpubound.advise.diagnose import diagnose_published, diagnose_run
from cpubound.advise.engines import ENGINES, find_engine
from cpubound.cli import main
from cpubound.errors import InputError, UsageError
from cpubound.machine.read import read_machine
from cpubound.profile.file import save_profile
from cpubound.profile.values import MachineProfile, PeakRate
from cpubound.theory.presets import find_preset

MODEL = "llama-3.1-8b:Q4_0"
CLI_LOG = """\
print_info: file size   = 4.33 GiB (4.63 BPW)
print_info: model params          = 8.03 B
llama_context: flash_attn            = enabled
system_info: n_threads = 2 / 4 | CPU : AVX2 = 1 |
common_perf_print: prompt eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
common_perf_print:        eval time =    8000.00 ms /    64 runs   (  125.00 ms per token,     8.00 tokens per second)
"""  # noqa: E501


def standard_profile(**changes: Any) -> MachineProfile:
    """Four cores, 40 GB/s, Q4_0 at 38 GB/s with all of them."""
    return build_profile(
        {1: 15 * GB, 2: 30 * GB, 4: 40 * GB},
        build_engine({"Q4_0": {1: 14 * GB, 2: 28 * GB, 4: 38 * GB}, "Q6_K": {4: 38 * GB}}),
        **changes,
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose profile is of the machine that the tests pretend to run on."""
    save_profile(standard_profile(), tmp_path / "profile.json")
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    monkeypatch.setattr("cpubound.machine.read.read_machine", lambda: build_machine(4))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["diagnose", *map(str, arguments)])
    output = capsys.readouterr()
    return code, output.out, output.err


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json", "-")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_parts_of_a_token_add_up_and_none_is_negative_but_the_rest() -> None:
    for observed in (1.0, 8.0, 9.6, 12.0):
        diagnosis = diagnose_run(build_case(observed=observed, depth_tokens=300))
        seconds = diagnosis.seconds
        assert seconds is not None
        parts = msgspec.to_builtins(seconds)
        assert sum(parts.values()) == pytest.approx(1 / observed)
        assert min(parts[name] for name in ("memory", "kernel", "attention", "overhead")) >= 0


def test_the_implied_bandwidth_is_that_of_all_parts() -> None:
    diagnosis = diagnose_run(build_case(observed=8.0, depth_tokens=4000))
    total = sum(part.implied_bytes_per_s for part in diagnosis.table)
    assert total == pytest.approx(diagnosis.implied_bytes_per_s)
    assert diagnosis.implied_bytes_per_s == diagnosis.bytes_per_step * 8.0
    assert [part.part for part in diagnosis.table] == ["weights", "kv_cache"]


@pytest.mark.parametrize(
    ("case", "gap"),
    [
        ({"observed": 9.9}, "memory"),
        ({"observed": 9.9, "bandwidth": {4: 90 * GB}}, "kernel"),
        ({"observed": 5.8, "per_product_s": 700e-6}, "overhead"),
        ({"observed": 5.0}, "unexplained"),
        ({"observed": 9.9, "threads": 8, "machine": {"cpus": 4}}, "configuration"),
        ({"observed": 64.0, "bandwidth": {4: 40 * GB}}, "impossible"),
        ({"observed": 0.5, "machine": {"cpus": 4, "memory_bytes": 4 * GB}}, "memory"),
    ],
)
def test_the_gap_is_named(case: dict[str, Any], gap: str) -> None:
    assert diagnose_run(build_case(**case)).gap == gap


def test_attention_is_named_where_it_takes_the_most_time() -> None:
    slow = {("f16", "f16", False): 1 * GB, ("f16", "f16", True): 1 * GB}
    case = build_case(attention=slow, depth_tokens=8000, observed=0.9)
    assert diagnose_run(case).gap == "attention"


def test_a_small_shortfall_is_not_a_warning() -> None:
    case = build_case(observed=8.8, predicted={4: 10.0})
    assert case.is_slow
    findings = {f.code: f.severity for f in diagnose_run(case).findings}
    assert findings["below-interval"] == "info"
    assert "unexplained" not in findings
    clear = diagnose_run(build_case(observed=7.0, predicted={4: 10.0}))
    severities = {f.code: f.severity for f in clear.findings}
    assert severities["unexplained"] == "warning"


def test_what_explains_a_shortfall_leaves_nothing_unexplained() -> None:
    case = build_case(
        observed=0.27,
        threads=8,
        predicted={2: 9.09, 4: 12.07},
        machine={"cpus": 8, "quota_cpus": 4.0, "effective_cpus": 4},
    )
    codes = [f.code for f in diagnose_run(case).findings]
    assert "quota-oversubscribed" in codes
    assert "unexplained" not in codes


def test_a_slow_run_is_told_what_the_machine_warns_of() -> None:
    case = build_case(observed=5.0, machine={"on_battery": True})
    assert "on-battery" in {f.code for f in diagnose_run(case).findings}
    fast = build_case(observed=9.9, machine={"on_battery": True})
    assert "on-battery" not in {f.code for f in diagnose_run(fast).findings}


def test_batches_that_were_measured_have_a_prediction() -> None:
    batches = {f"bytes:{name}@{n}": n**0.5 / (38 * GB) for name in ("Q4_0", "Q6_K") for n in (2, 8)}
    case = build_case(observed=20.0, batch=4, seconds=batches)
    found = diagnose_run(case)
    assert found.predicted_tokens_per_s == case.prediction.tokens_per_s
    assert found.seconds is not None
    assert sum(msgspec.to_builtins(found.seconds).values()) == pytest.approx(4 / 20.0)


def test_the_kernel_ceiling_is_that_of_our_own_kernels() -> None:
    from builders import build_measurement

    case = build_case(observed=8.0, model="tinyllama-1.1b:Q8_0")
    assert diagnose_run(case).kernel_ceiling_tokens_per_s is None
    rows = (*case.profile.bandwidth, build_measurement(4, 5 * GB, kernel="gemv_q8_0"))
    profile = msgspec.structs.replace(case.profile, bandwidth=rows)
    import dataclasses

    found = diagnose_run(dataclasses.replace(case, profile=profile))
    weights = case.traffic.by_type["Q8_0"]
    assert found.kernel_ceiling_tokens_per_s == pytest.approx(5 * GB / weights, rel=0.01)
    assert found.share_of_kernel_ceiling == pytest.approx(8.0 * weights / 5e9, rel=0.01)


@pytest.mark.parametrize(
    ("model", "depth", "tokens_per_s"),
    [("llama-3.1-8b:BF16", 4096, 201.8), ("llama-3.3-70b:BF16", 32768, 22.0)],
)
def test_a_published_ceiling_is_all_of_the_bandwidth_of_an_h100(
    model: str, depth: int, tokens_per_s: float
) -> None:
    """The table counts the looked-up token table as read, which is 3 to 7 % of the weights."""
    case = case_of(model, depth_tokens=depth)
    found = diagnose_published(case, tokens_per_s, find_preset("h100-sxm"))
    assert 0.92 < found.share_of_ceiling <= 1.0
    assert found.gap is None


@pytest.mark.parametrize(
    ("model", "precision", "ridge_batch"),
    [("llama-3.1-8b:Q4_0", "int8", 5.5), ("llama-3.1-8b:F16", "fp32", 5.0)],
)
def test_a_measured_peak_rate_gives_the_batch_ceiling(
    model: str, precision: str, ridge_batch: float
) -> None:
    """A batch of B reads a weight once for 2B operations: B = balance × bytes of a weight / 2."""
    peaks = tuple(
        PeakRate(dtype=dtype, isa="avx2", threads=4, flops_per_s=rate, samples_flops_per_s=(rate,))
        for dtype, rate in (("int8", 8e11), ("fp32", 2e11))
    )
    case = build_case(model=model, bandwidth={4: 40.0 * GB}, profile={"peak": peaks})
    ceiling = diagnose_run(case).batch_ceiling
    assert ceiling.compute_precision == precision
    assert ceiling.ridge_batch == pytest.approx(ridge_batch, rel=0.15)


def test_a_rate_above_the_published_peak_is_impossible() -> None:
    case = case_of("llama-3.1-8b:BF16", depth_tokens=4096)
    found = diagnose_published(case, 260.0, find_preset("h100-sxm"))
    assert found.gap == "impossible"
    assert found.findings[0].code == "impossible"


def test_a_published_machine_has_its_batch_ceiling() -> None:
    found = diagnose_published(case_of("qwen3-32b:BF16"), 40.0, find_preset("h100-sxm"))
    # 848 without the FLOPs of attention itself.
    assert found.batch_ceiling.n_star_tokens == pytest.approx(848, rel=0.1)
    assert found.batch_ceiling.ridge_batch == pytest.approx(295, rel=0.05)
    longer = diagnose_published(
        case_of("qwen3-32b:BF16", depth_tokens=4096), 40.0, find_preset("h100-sxm")
    )
    assert longer.batch_ceiling.can_be_compute_bound is False
    assert longer.batch_ceiling.ridge_batch is None


def test_a_model_too_large_for_one_device_is_said() -> None:
    found = diagnose_published(case_of("llama-3.3-70b:BF16"), 20.0, find_preset("h100-sxm"))
    assert "not-resident" in {f.code for f in found.findings}
    assert found.batch_ceiling.largest_batch == 0


def test_the_verb_takes_a_rate(home: Path) -> None:
    found = cpubound.diagnose(MODEL, observed=8.0, threads=4)
    assert found.observed_tokens_per_s == 8.0
    assert found.predicted_tokens_per_s == pytest.approx(8.6, rel=0.05)
    assert found.engine == "llama.cpp"


def test_the_verb_takes_a_log(home: Path) -> None:
    log = home / "log"
    log.write_text(CLI_LOG)
    found = cpubound.diagnose(MODEL, log=log)
    assert (found.observed_tokens_per_s, found.threads, found.setting.depth_tokens) == (8.0, 2, 132)
    assert cpubound.diagnose(MODEL, log=log, threads=4, depth=0).threads == 4


def test_what_is_not_given_is_the_engine_s_own_default(home: Path) -> None:
    found = cpubound.diagnose(MODEL, observed=8.0, engine="llama-cpp-python")
    assert (found.threads, found.setting.flash_attn) == (2, False)
    assert any("llama-cpp-python's own default, 2" in note for note in found.notes)
    assert cpubound.diagnose(MODEL, observed=8.0).setting.flash_attn is True


@pytest.mark.parametrize("name", ["llama-server", "Ollama", "LM Studio", "llama_cpp_python"])
def test_engines_go_by_the_names_that_people_give(name: str) -> None:
    assert find_engine(name) in ENGINES


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean ollama"):
        find_engine("olama")
    with pytest.raises(UsageError, match=r"give one of llama\.cpp"):
        find_engine("vllm-on-a-toaster")


def test_the_document_has_the_fields_of_the_contract(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, MODEL, "--observed", 4.2, "--threads", 4)
    assert found["schema"] == "cpubound.advice/1"
    assert {
        "recommendation",
        "table",
        "findings",
        "observed_tokens_per_s",
        "implied_bytes_per_s",
        "share_of_ceiling",
        "share_of_kernel_ceiling",
        "share_of_prediction",
        "gap",
        "batch_ceiling",
    } <= set(found)
    assert found["gap"] == "unexplained"
    finding = next(f for f in found["findings"] if f["code"] == "unexplained")
    assert set(finding) == {
        "code",
        "severity",
        "evidence",
        "message",
        "cost_tokens_per_s",
        "remedy",
    }


def test_every_field_of_the_document_is_documented(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    section = text.split("## cpubound.advice/1")[1].split("\n## ")[0]

    def names(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(names, value.values()))
        return set().union(*map(names, value)) if isinstance(value, list) else set()

    found = document(capsys, MODEL, "--observed", 4.2, "--threads", 4)
    for finding in found["findings"]:
        finding["evidence"] = None
    assert [name for name in sorted(names(found)) if f"`{name}`" not in section] == ["schema"]


def test_the_screen_is_one_screen_and_begins_with_the_answer(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, MODEL, "--observed", 4.2, "--threads", 4)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 40
    assert "4.20 tok/s moves 18." in out
    assert "unexplained" in out
    assert out.count("→") >= 1


@pytest.mark.parametrize("style", ["markdown", "csv"])
def test_the_other_formats_hold_the_findings(
    home: Path, capsys: pytest.CaptureFixture[str], style: str
) -> None:
    _, out, _ = run(capsys, MODEL, "--observed", 4.2, "--threads", 4, "--format", style)
    assert "warning: unexplained" in out


def test_a_gpu_s_rate_is_held_against_its_published_peak(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, "qwen3-32b:BF16", "--observed", 25, "--machine", "H100-SXM")
    assert found["machine"] == "h100-sxm"
    assert found["share_of_ceiling"] == pytest.approx(0.48, abs=0.03)
    assert found["predicted_tokens_per_s"] is None
    assert found["measured_bytes_per_s"] is not None
    code, out, _ = run(capsys, "qwen3-32b:BF16", "--observed", 25, "--machine", "h100-sxm")
    assert code == 0
    assert "of the published peak, 3350 GB/s" in out


def test_a_published_machine_needs_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "empty"))
    assert run(capsys, MODEL, "--observed", 25, "--machine", "a100-80gb")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give the observed rate or a log"),
        (("--observed", 5, "--from-log", "x"), 2, "give the observed rate or a log"),
        (("--observed", 0), 2, "must be a positive number of tokens per second (0)"),
        (("--observed", -3.5), 2, "(-3.5)"),
        (("--observed", "nan"), 2, "'nan' is no number"),
        (("--observed", "inf"), 2, "'inf' is no number"),
        (("--observed", "fast"), 2, "fast"),
        (("--observed", 5, "--threads", 0), 2, "--threads"),
        (("--observed", 5, "--batch", 0), 2, "--batch"),
        (("--observed", 5, "--kv-type", "q9_9"), 2, "q9_9"),
        (("--observed", 5, "--kv-type", "q8_0", "-fa", "off"), 2, "flash-attention"),
        (("--observed", 5, "--machine", "h200-sxn"), 2, "did you mean"),
        (("--observed", 5, "--engine", "olama"), 2, "did you mean ollama"),
        (("--observed", 5, "--depth", 5000, "--n-ctx", 4096), 2, "4096"),
        (("--from-log", "/no/such/log"), 3, "no such file"),
        (("--observed", 5, "--profile", "/no/such/profile"), 3, "no such profile"),
    ],
)
def test_bad_input_is_one_clear_line(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[object, ...],
    code: int,
    message: str,
) -> None:
    got, out, err = run(capsys, MODEL, *arguments)
    assert (got, out) == (code, "")
    assert err.startswith("cpubound: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_log_of_another_model_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = home / "log"
    log.write_text(CLI_LOG)
    code, _, err = run(capsys, "llama-3.2-3b:Q4_0", "--from-log", log)
    assert code == 3
    assert "the log is of a model with 8.03 billion weights, llama-3.2-3b has 3.21" in err
    code, _, err = run(capsys, "llama-3.1-8b:Q8_0", "--from-log", log)
    assert code == 3
    assert "the log is of a file with 4.33 GiB of weights" in err
    with pytest.raises(InputError, match="give the file type that was run"):
        cpubound.diagnose("llama-3.1-8b:Q8_0", log=log)


def test_a_log_with_several_runs_takes_a_number(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = home / "log"
    log.write_text(CLI_LOG + CLI_LOG.replace("8000.00", "9000.00"))
    code, _, err = run(capsys, MODEL, "--from-log", log)
    assert code == 2
    assert "--run N" in err
    found = document(capsys, MODEL, "--from-log", log, "--run", 2)
    assert found["observed_tokens_per_s"] == pytest.approx(64 / 9)


def test_a_log_of_a_gpu_is_refused_but_for_a_published_machine(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = home / "log"
    log.write_text("load_tensors: offloaded 33/33 layers to GPU\n" + CLI_LOG)
    code, _, err = run(capsys, MODEL, "--from-log", log)
    assert code == 2
    assert "on a GPU, or partly (33 layers offloaded)" in err
    assert run(capsys, MODEL, "--from-log", log, "--machine", "h100-sxm")[0] == 0


def test_a_context_beyond_training_is_said(home: Path) -> None:
    found = cpubound.diagnose("llama-3-8b:Q4_0", observed=5.0, depth=9000)
    assert "beyond-training" in {f.code for f in found.findings}


def test_the_default_profile_must_be_of_this_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "stale-profile" not in {f.code for f in cpubound.diagnose(MODEL, observed=8.0).findings}
    monkeypatch.setattr("cpubound.machine.read.read_machine", lambda: build_machine(8))
    assert "stale-profile" in {f.code for f in cpubound.diagnose(MODEL, observed=8.0).findings}
    chosen = cpubound.diagnose(MODEL, observed=8.0, profile=standard_profile())
    assert "stale-profile" not in {f.code for f in chosen.findings}


def test_this_machine_is_itself() -> None:
    from cpubound.advise.rules.profile import machine_differences

    machine = read_machine()
    assert machine_differences(machine, machine) == ()


def test_a_mean_over_many_sequences_is_split_among_them(home: Path) -> None:
    found = cpubound.diagnose(MODEL, observed=20.0, batch=4)
    assert found.predicted_tokens_per_s is None
    assert math.isclose(found.implied_bytes_per_s, found.bytes_per_step * 5)
