from __future__ import annotations

from pathlib import Path

import pytest
from builders import GB, build_engine, build_profile

import cpubound
from cpubound.api import survey
from cpubound.cost.thread_choice import thread_counts
from cpubound.model.catalog import catalog_model

PROFILE = build_profile(
    {1: 20.0 * GB, 2: 30.0 * GB},
    build_engine({n: {1: 9.0 * GB, 2: 17.0 * GB} for n in ("Q4_K", "Q6_K")}),
)


def test_the_verbs_are_attributes_of_the_package() -> None:
    for name in ("calibrate", "load_profile", "inspect_model", "predict", "validate", "tune"):
        assert callable(getattr(cpubound, name))
        assert name in dir(cpubound)
    with pytest.raises(AttributeError, match="frobnicate"):
        cpubound.frobnicate  # noqa: B018


def test_predict_takes_a_name_and_chooses_the_threads() -> None:
    p = cpubound.predict("llama-3.2-1b:Q4_K_M", profile=PROFILE)
    assert p.setting.threads == 2
    assert p.basis == "engine"


def test_inspect_and_predict_agree_on_the_bytes() -> None:
    traffic = cpubound.inspect_model("llama-3.2-1b:Q4_K_M", depth=1000)
    p = cpubound.predict("llama-3.2-1b:Q4_K_M", depth=1000, profile=PROFILE)
    assert p.bytes_per_token == traffic.total_bytes


def test_tune_returns_commands_for_the_path_it_is_given(tmp_path: Path) -> None:
    advice = cpubound.tune("llama-3.2-1b:Q4_K_M", profile=PROFILE, model_path="here.gguf")
    assert "-m here.gguf" in advice.recommendation.commands["llama-server"]


def test_thread_counts_come_from_what_was_measured_with_the_engine() -> None:
    assert thread_counts(PROFILE) == (1, 2)


def test_a_survey_lists_what_fits_fastest_first() -> None:
    specs = [
        catalog_model(name, "Q4_K_M") for name in ("llama-3.1-8b", "llama-3.3-70b", "llama-3.2-1b")
    ]
    found = survey(specs, profile=PROFILE)
    assert [p.model for p in found] == ["llama-3.2-1b", "llama-3.1-8b"]
    assert found[0].tokens_per_s > found[1].tokens_per_s


def test_a_long_context_can_make_a_model_not_fit() -> None:
    specs = [catalog_model("llama-3.1-8b", "Q4_K_M")]
    assert survey(specs, n_ctx=131072, profile=PROFILE) == ()
