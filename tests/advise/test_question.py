"""From a log and what a person gives to the case that is diagnosed."""

from __future__ import annotations

import pytest
from builders import build_machine, standard_profile

from cpubound.advise.logs import LoggedRun
from cpubound.advise.question import Question, case_of, model_case_of, require_same_machine
from cpubound.advise.tune.defaults import Default
from cpubound.errors import InputError, UsageError
from cpubound.model.resolve import resolve_model
from cpubound.setting import Setting

SPEC = resolve_model("llama-3.1-8b:Q4_0")


def logged(**fields: object) -> LoggedRun:
    return LoggedRun(engine="llama.cpp", tokens_per_s=5.0, **fields)  # type: ignore[arg-type]


def setting_for(question: Question) -> Setting:
    return model_case_of(question, SPEC, Default(threads=4, flash_attn=True)).setting


def test_a_reused_prompt_of_unknown_length_asks_for_the_depth() -> None:
    run = logged(has_unknown_prefix=True)
    with pytest.raises(UsageError, match="--depth N"):
        setting_for(Question(run=run))
    assert setting_for(Question(run=run, depth_tokens=900)).depth_tokens == 900


@pytest.mark.parametrize("cpus", [2, 16])
def test_a_log_of_another_machine_gets_no_advice_for_this_one(cpus: int) -> None:
    with pytest.raises(InputError, match=rf"a machine with {cpus} CPUs.*--profile"):
        require_same_machine(logged(cpus=cpus), build_machine(4))


def test_what_an_affinity_or_a_quota_shows_is_this_machine() -> None:
    machine = build_machine(8, allowed_cpus=(0, 1, 2, 3), effective_cpus=2)
    for cpus in (None, 2, 4, 8):
        require_same_machine(logged(cpus=cpus), machine)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Llama-3.2-1B-Instruct-Q4_0.gguf", "llama-3.2-1b"),
        ("Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", "Q8_0"),
    ],
)
def test_a_log_that_names_another_model_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        setting_for(Question(run=logged(model=f"/m/{name}")))


@pytest.mark.parametrize(
    "name", [None, "m", "Meta-Llama-3.1-8B-Instruct-Q4_0.gguf", "my-tune.gguf"]
)
def test_a_log_that_names_this_model_or_none_that_is_known_is_taken(name: str | None) -> None:
    setting_for(Question(run=logged(model=name)))


def test_the_batch_of_a_row_is_taken_unless_another_is_given() -> None:
    run = logged(batch=4)
    assert setting_for(Question(run=run)).batch == 4
    assert setting_for(Question(run=run, batch=8)).batch == 8


def test_what_is_said_about_a_run_is_among_the_notes() -> None:
    question = Question(run=logged(notes=("its time holds the prompt",), threads=4))
    _, notes = case_of(question, SPEC, standard_profile(), model_argument="m")
    assert notes == ("its time holds the prompt",)
