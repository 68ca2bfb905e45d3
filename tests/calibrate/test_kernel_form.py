"""calibrate.kernel_form: hand-made profiles whose llama.cpp stands to our kernels as we say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from builders import GB
from kernel_profiles import SHARPNESS, measured

from calibrate import kernel_form
from calibrate.kernel_form_toml import form_lines
from cpubound.cost.estimated_engine import estimate_engine
from cpubound.cost.kernel_form import decode_forms
from cpubound.cost.rates import weight_rate
from cpubound.profile.file import save_profile


def test_a_form_holds_what_the_profile_was_made_of() -> None:
    form = kernel_form.fit_form([measured()])
    assert form.cpu_model == "Test CPU"
    assert form.types["Q5_K"].kernel == "Q4_K"
    for name in ("Q4_K", "Q5_K"):
        assert form.types[name].factors == pytest.approx([0.8] * len(form.columns))
    assert form.sharpness == SHARPNESS
    (attention,) = form.attention
    assert attention.kernel == "F16"
    assert attention.factor == pytest.approx(0.2)
    assert form.states["delta"].kernel == "F32"
    assert form.states["delta"].factor == pytest.approx(0.5)
    assert set(form.batches) == {"Q4_K"}
    by_tokens = dict(zip(form.tokens, form.batches["Q4_K"].factors, strict=True))
    # As measured at eight tokens; beyond them the time grows as they do.
    assert by_tokens[8] == pytest.approx(0.2)
    assert by_tokens[64] == pytest.approx(0.025)
    assert 0.2 < by_tokens[3] < 0.8
    assert form.experts["Q3_K"].kernel == "Q4_K"
    assert form.experts["Q3_K"].factor == pytest.approx(0.6)
    assert form.attention_growth.exponent == pytest.approx(0.0)
    assert form.state_growth.exponent == pytest.approx(0.5)
    assert form.costs.product.at(1) == pytest.approx(7e-6)
    assert form.costs.token.at(0) == pytest.approx(1e-4)
    assert form.kernels["Q4_K"].bytes_per_s == pytest.approx(12.0 * GB)


def test_of_several_profiles_the_median_counts_and_their_distance_is_its_error() -> None:
    alone = kernel_form.fit_form([measured(0.8)]).types["Q4_K"]
    form = kernel_form.fit_form([measured(0.8), measured(0.4), measured(0.6)])
    assert form.types["Q4_K"].factors == pytest.approx([0.6] * len(form.columns))
    assert form.types["Q4_K"].error > alone.error


def test_what_the_command_prints_predicts_the_profile_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    save_profile(measured(), path)
    assert kernel_form.main([str(path)]) == 0
    forms = decode_forms(capsys.readouterr().out)
    assert set(forms) == {"x86"}
    profile = measured()
    assert profile.engine is not None
    for threads in (1, 2):
        engine = estimate_engine(profile, threads, forms)
        assert engine is not None
        for name in ("Q4_K", "Q5_K"):
            ours = weight_rate(engine, name, 2048, threads)
            theirs = weight_rate(profile.engine, name, 2048, threads)
            assert ours is not None and theirs is not None
            assert ours.bytes_per_s == pytest.approx(theirs.bytes_per_s, rel=0.01)


def test_a_profile_of_one_kind_only_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    save_profile(msgspec.structs.replace(measured(), engine=None), path)
    assert kernel_form.main([str(path)]) == 1
    assert "give one of `cpubound calibrate`" in capsys.readouterr().err


def test_the_shipped_file_is_one_that_the_command_prints() -> None:
    """Its own forms, printed again, are the same lines."""
    text = (Path(kernel_form.__file__).parents[1] / "cpubound/cost/kernel_form.toml").read_text(
        encoding="utf-8"
    )
    for isa, form in decode_forms(text).items():
        assert "\n".join(form_lines(isa, form)) in text
