from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import GB, build_engine, build_machine, build_profile, build_traffic

from cpubound.advise.compare import Comparison, compare_profiles
from cpubound.cost.predict import predict_decode
from cpubound.profile.file import save_profile
from cpubound.profile.values import MachineProfile, judge_noise
from cpubound.report.comparison import comparison_text

Run = Callable[..., tuple[int, str, str]]
ATTENTION = {("f16", "f16", True): 4.0 * GB}


def make_profile(
    read: float = 50.0, q4: float = 40.0, *, spread: float = 0.02, **machine: Any
) -> MachineProfile:
    return build_profile(
        {1: read / 2 * GB, 2: read * GB},
        build_engine({"Q4_0": {1: q4 / 2 * GB, 2: q4 * GB}}, attention=ATTENTION),
        machine=build_machine(2, **machine),
        noise=judge_noise((1 - spread, 1.0, 1 + spread), 10.0),
    )


def rate_of(found: Comparison, what: str, threads: int = 2) -> Any:
    return next(r for r in found.rates if r.what == what and r.threads == threads)


def test_a_profile_compared_with_itself_shows_no_difference() -> None:
    profile = make_profile()
    found = compare_profiles(profile, profile)
    assert found.same_machine and found.same_engine
    assert found.identity == ()
    assert all(r.change == 0 and not r.beyond_noise for r in found.rates)
    # Two thread counts of reads, one type and one attention.
    assert len(found.rates) == 6


def test_what_is_another_machine_is_named_before_all_else() -> None:
    other = make_profile(cpu_model="Other CPU", governor="powersave")
    found = compare_profiles(make_profile(), other)
    assert not found.same_machine
    assert [(d.field, d.a, d.b) for d in found.identity] == [
        ("CPU", "Test CPU", "Other CPU"),
        ("governor", "unknown", "powersave"),
    ]
    assert comparison_text(found).startswith("Two machines, the same llama.cpp.")


def test_another_governor_is_no_other_machine() -> None:
    found = compare_profiles(make_profile(), make_profile(governor="powersave", boost=False))
    assert found.same_machine
    assert [d.field for d in found.identity] == ["governor", "boost"]


def test_another_build_of_llama_cpp_is_said_to_be_one() -> None:
    a = make_profile()
    assert a.engine is not None
    b = msgspec.structs.replace(a, engine=msgspec.structs.replace(a.engine, build="other"))
    found = compare_profiles(a, b)
    assert found.same_machine and not found.same_engine
    assert [d.field for d in found.identity] == ["build"]
    assert "another llama.cpp" in comparison_text(found)


def test_a_change_is_beyond_noise_only_where_it_exceeds_both_spreads() -> None:
    quiet = compare_profiles(make_profile(50.0), make_profile(60.0))
    noisy = compare_profiles(make_profile(50.0), make_profile(60.0, spread=0.3))
    for found, expected in ((quiet, True), (noisy, False)):
        read = rate_of(found, "read, anon_4k pages")
        assert read.change == pytest.approx(0.2)
        assert read.beyond_noise is expected
    assert not rate_of(quiet, "llama.cpp Q4_0").beyond_noise


def test_a_faster_engine_shows_in_its_own_rows() -> None:
    found = compare_profiles(make_profile(q4=20.0), make_profile(q4=40.0))
    assert rate_of(found, "llama.cpp Q4_0").change == pytest.approx(1.0)
    assert rate_of(found, "llama.cpp Q4_0").beyond_noise
    assert rate_of(found, "read, anon_4k pages").change == 0


def test_profiles_without_an_engine_compare_by_bandwidth_alone() -> None:
    bare = build_profile({2: 50.0 * GB})
    found = compare_profiles(bare, make_profile())
    assert [d.field for d in found.identity if d.field in ("engine", "build")]
    assert {r.what for r in found.rates} == {"read, anon_4k pages"}
    assert compare_profiles(bare, bare).same_engine


def test_models_say_whether_the_difference_exceeds_the_intervals() -> None:
    def compare_models(rate: float) -> bool:
        a, b = make_profile(), make_profile(q4=rate)
        traffic = build_traffic({"Q4_0": 10**9})
        pair = (predict_decode(a, traffic, 2), predict_decode(b, traffic, 2))
        return compare_profiles(a, b, [pair]).models[0].beyond_intervals

    assert compare_models(80.0)
    assert compare_models(20.0)
    assert not compare_models(41.0)


@pytest.fixture
def run(tmp_path: Path, invoke: Run) -> Run:
    save_profile(make_profile(), tmp_path / "a.json")
    save_profile(make_profile(60.0, 80.0, cpu_model="Other CPU"), tmp_path / "b.json")

    def call(*arguments: str) -> tuple[int, str, str]:
        paths = [str(tmp_path / name) if name.endswith(".json") else name for name in arguments]
        return invoke("compare", *paths)

    return call


def test_the_command_shows_identity_rates_and_models(
    run: Run,
) -> None:
    code, out, err = run("a.json", "b.json", "llama-3.2-1b:Q4_0", "--depth", "0,1024")
    assert (code, err) == (0, "")
    identity, rates, models = out.index("Other CPU"), out.index("GB/s"), out.index("llama-3.2-1b")
    assert identity < rates < models
    assert "at 1k" in out
    assert [line.split()[-1] for line in out.splitlines()[-2:]] == ["within", "within"]


def test_the_document_holds_both_sides(run: Run) -> None:
    code, out, _ = run("a.json", "b.json", "llama-3.2-1b:Q4_0", "--json", "-")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "cpubound.comparison/1"
    assert document["b"]["cpu_model"] == "Other CPU"
    assert document["models"][0]["a"]["tokens_per_s"] < document["models"][0]["b"]["tokens_per_s"]


def test_a_missing_profile_is_one_clear_error(run: Run) -> None:
    code, out, err = run("a.json", "c.json")
    assert (code, out) == (3, "")
    assert err.startswith("cpubound: error: there is no such profile")
    assert err.count("\n") == 1
