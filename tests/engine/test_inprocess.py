"""The llama-cpp-python runner, through llama.cpp itself on tiny files."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from builders import run_settings
from fakes import tiny_model

from cpubound.engine import LlamaCppRunner, find_runner, open_runner
from cpubound.engine.inprocess import check_settings
from cpubound.engine.protocol import Run, Tokens
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.errors import (
    CpuboundError,
    EngineCrashed,
    EngineUnavailable,
    MachineError,
    ModelFileError,
    UsageError,
)

needs_engine = [
    pytest.mark.engine,
    pytest.mark.skipif(find_runner() is None, reason="llama-cpp-python is not installed"),
]


def settings(path: object = "x.gguf", **changes: Any) -> RunSettings:
    return run_settings(path, **{"tokens": 4, "flash_attn": False, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 0}, "thread count out of range"),
        ({"tokens": 0}, "token count out of range"),
        ({"batch": 0}, "batch out of range"),
        ({"batch": 257}, "at most 256"),
        ({"depth_tokens": -1}, "depth out of range"),
        ({"kv_type_k": "q9_0"}, "no cache of type"),
        ({"kv_type_k": "q4_k"}, "no cache of type"),
        ({"kv_type_v": "q8_0"}, "works only with flash-attention"),
        ({"depth_tokens": 100, "allocated_context_tokens": 103}, "depth and tokens need 104"),
        ({"prompt_tokens": 0}, "prompt out of range"),
        ({"prompt_tokens": 8, "batch": 2}, "a prompt is one sequence"),
    ],
)
def test_settings_that_llama_cpp_would_refuse_are_refused_before(changes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_settings(settings(**changes))


def test_quantised_values_are_accepted_with_flash_attention() -> None:
    check_settings(settings(kv_type_k="q8_0", kv_type_v="q8_0", flash_attn=True))


def test_without_the_binding_the_error_names_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match=r"pip install 'cpubound\[engine\]'"):
        open_runner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder: Path, runner: LlamaCppRunner) -> Path:
    path = folder / "tiny.gguf"
    write_model(tiny_model("Q4_0"), path, quantize=runner.quantize)
    return path


def transplanted(runner: LlamaCppRunner, at: RunSettings) -> bool:
    reply = runner._ask(Run(settings=at), Tokens)
    return reply.transplanted


class TestWithEngine:
    pytestmark = needs_engine

    def test_every_token_has_its_time(self, runner, model) -> None:
        seen = runner.run(settings(model, tokens=5))
        assert len(seen.samples_s) == 5
        assert all(sample > 0 for sample in seen.samples_s)
        assert seen.engine == runner.identity()

    def test_the_engine_says_what_it_is(self, runner) -> None:
        identity = runner.identity()
        assert identity.name == "llama-cpp-python"
        assert identity.version
        assert len(identity.build) == 16
        assert identity.features

    def test_a_model_is_loaded_once(self, runner, model) -> None:
        runner.close_model(str(model))
        assert runner.run(settings(model)).load_s is not None
        assert runner.run(settings(model, threads=2)).load_s is None
        runner.close_model(str(model))
        assert runner.run(settings(model)).load_s is not None

    def test_closing_an_unknown_model_does_nothing(self, runner) -> None:
        runner.close_model("no such file")

    @pytest.mark.parametrize("depth", [1, 31, 33, 700])
    @pytest.mark.parametrize(
        "kv",
        [
            {},
            {"flash_attn": True},
            {"kv_type_k": "q8_0"},
            {"kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attn": True},
        ],
        ids=["f16", "f16-fa", "q8_0:f16", "q8_0-fa"],
    )
    def test_decoding_goes_on_at_any_depth_and_cache_type(self, runner, model, depth, kv) -> None:
        runner.close_model(str(model))  # else the cells of the run before may serve
        at = settings(model, depth_tokens=depth, **kv)
        assert len(runner.run(at).samples_s) == 4
        assert transplanted(runner, at) == (depth > 32)

    def test_a_real_prefill_can_be_asked_for(self, runner, model) -> None:
        at = settings(model, depth_tokens=100)
        assert not runner._ask(Run(settings=at, prefill=True), Tokens).transplanted

    @pytest.mark.parametrize("batch", [2, 5])
    @pytest.mark.parametrize("depth", [0, 300])
    def test_several_sequences_are_decoded_in_one_step(self, runner, model, batch, depth) -> None:
        at = settings(model, batch=batch, depth_tokens=depth, flash_attn=True)
        assert len(runner.run(at).samples_s) == 4

    @pytest.mark.parametrize("prompt", [1, 40, 600])
    @pytest.mark.parametrize("depth", [0, 300])
    @pytest.mark.parametrize("all_logits", [False, True])
    def test_a_prompt_is_processed_as_often_as_asked(
        self, runner, model, prompt, depth, all_logits
    ) -> None:
        at = settings(
            model, prompt_tokens=prompt, depth_tokens=depth, tokens=3, all_logits=all_logits
        )
        assert len(runner.run(at).samples_s) == 3

    def test_weights_can_be_left_in_the_layout_of_the_file(self, runner, model) -> None:
        for changes in ({"repack": False}, {"mmap": False}):
            assert runner.run(settings(model, **changes)).load_s is not None

    def test_the_process_is_pinned_and_set_free_again(self, runner, model) -> None:
        before = os.sched_getaffinity(0)
        cpu = min(before)
        runner.run(settings(model, cpus=(cpu,)))
        tasks = [int(task.name) for task in Path(f"/proc/{runner.pid}/task").iterdir()]
        assert all(os.sched_getaffinity(task) == {cpu} for task in tasks)
        runner.run(settings(model))
        assert os.sched_getaffinity(runner.pid) == before
        assert os.sched_getaffinity(0) == before

    def test_a_cpu_that_is_not_there_is_a_usage_error(self, runner, model) -> None:
        with pytest.raises(UsageError, match=r"cannot pin the engine to CPUs \(4095\)"):
            runner.run(settings(model, cpus=(4095,)))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "refuses the model"),
            (b"<!DOCTYPE html>" * 20, "invalid magic"),
            (b"GGUF\x03\x00\x00\x00" + b"\xff" * 40, "refuses the model"),
        ],
        ids=["empty", "html", "absurd"],
    )
    def test_a_refused_file_is_named_with_the_reason(
        self, runner, tmp_path, content, message
    ) -> None:
        path = tmp_path / "bad.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=message) as caught:
            runner.run(settings(path))
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_truncated_file_is_refused_and_the_runner_goes_on(
        self, runner, model, tmp_path
    ) -> None:
        path = tmp_path / "cut.gguf"
        path.write_bytes(model.read_bytes()[:-5000])
        with pytest.raises(ModelFileError, match="not within the file bounds"):
            runner.run(settings(path))
        assert runner.run(settings(model)).samples_s

    def test_heads_that_do_not_hold_a_block_are_refused_by_name(self, runner, folder) -> None:
        path = folder / "narrow.gguf"
        spec = tiny_model("F16", **{"attention.head_count": 16, "rope.dimension_count": 16})
        write_model(spec, path)
        with pytest.raises(MachineError, match="cannot make a context"):
            runner.run(settings(path, kv_type_k="q8_0", kv_type_v="q8_0", flash_attn=True))

    def test_an_assertion_in_llama_cpp_is_an_error_and_the_runner_goes_on(
        self, model, folder
    ) -> None:
        with LlamaCppRunner() as runner:
            broken = settings(model, depth_tokens=3)
            runner.run(broken)
            pid = runner.pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed, match="SIGKILL"):
                runner.run(broken)
            assert runner.run(broken).samples_s
            assert runner.pid != pid

    def test_a_child_killed_while_it_decodes_is_reported(self, model) -> None:
        with LlamaCppRunner() as runner:
            runner.identity()
            killer = threading.Timer(0.1, os.kill, (runner.pid, signal.SIGKILL))
            killer.start()
            try:
                with pytest.raises(CpuboundError, match="SIGKILL"):
                    runner.run(settings(model, tokens=1_000_000))
            finally:
                killer.join()


@pytest.fixture(scope="module")
def other_model(folder: Path, runner: LlamaCppRunner) -> Path:
    path = folder / "other.gguf"
    write_model(tiny_model("Q8_0", layers=3), path, quantize=runner.quantize)
    return path


class TestTurnsWithEngine:
    pytestmark = needs_engine

    def test_every_run_has_a_time_in_each_pass(self, runner, model, other_model) -> None:
        runs = [settings(model), settings(other_model, flash_attn=True), settings(other_model)]
        found = runner.rotate(runs, passes=3, seed=1)
        assert [len(row) for row in found] == [3, 3, 3]
        assert all(sample > 0 for row in found for sample in row)

    def test_two_cells_that_would_share_a_context_are_an_error(self, runner, model) -> None:
        with pytest.raises(CpuboundError):
            runner.rotate([settings(model), settings(model, threads=2)], passes=3, seed=1)

    def test_more_cells_of_a_model_than_contexts_are_kept_take_turns(self, runner, model) -> None:
        runs = [
            settings(model, kv_type_k=kv, kv_type_v=kv, flash_attn=True)
            for kv in ("f16", "q8_0", "q4_0", "q5_0", "q4_1", "bf16")
        ]
        assert [len(row) for row in runner.rotate(runs, passes=3, seed=1)] == [3] * 6

    def test_a_model_may_be_named_from_where_one_stands(
        self, runner, model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(model.parent)
        assert len(runner.rotate([settings(model.name)], passes=2, seed=0)[0]) == 2

    def test_cells_at_several_depths_of_several_models_take_turns(
        self, runner, model, other_model
    ) -> None:
        cache = {"flash_attn": True, "allocated_context_tokens": 800}
        runs = [
            settings(model, depth_tokens=600, **cache),
            settings(other_model, depth_tokens=700, **cache),
            settings(other_model, depth_tokens=0),
            settings(model, depth_tokens=300, kv_type_k="q8_0", kv_type_v="q8_0", **cache),
        ]
        for seed in (1, 2):
            found = runner.rotate(runs, passes=5, seed=seed)
            assert [len(row) for row in found] == [5] * 4
        # The contexts still serve a run of their own.
        assert len(runner.run(settings(other_model, depth_tokens=700, **cache)).samples_s) == 4

    def test_the_cache_grows_by_a_token_in_each_pass(self, runner, model, other_model) -> None:
        """A context with room for the depth, a warm-up and the passes is enough."""
        runs = [
            settings(
                path, depth_tokens=500, allocated_context_tokens=512, tokens=6, flash_attn=True
            )
            for path in (model, other_model)
        ]
        assert [len(row) for row in runner.rotate(runs, passes=11, seed=3)] == [11, 11]
        with pytest.raises(CpuboundError):
            runner.rotate(runs, passes=13, seed=3)
        assert [len(row) for row in runner.rotate(runs, passes=11, seed=3)] == [11, 11]

    def test_a_file_that_is_refused_is_named_and_the_others_go_on(
        self, runner, model, tmp_path
    ) -> None:
        path = tmp_path / "bad.gguf"
        path.write_bytes(b"GGUF")
        with pytest.raises(ModelFileError, match=re.escape(str(path))):
            runner.rotate([settings(model), settings(path)], passes=2, seed=0)
        assert len(runner.rotate([settings(model)], passes=2, seed=0)[0]) == 2

    def test_settings_that_llama_cpp_would_refuse_are_refused_before(self, runner, model) -> None:
        with pytest.raises(UsageError, match="thread count"):
            runner.rotate([settings(model), settings(model, threads=0)], passes=1, seed=0)

    def test_nothing_to_run_is_no_error(self, runner) -> None:
        assert runner.rotate([], passes=3, seed=0) == ()

    def test_a_model_closed_in_between_is_opened_again(self, runner, model, other_model) -> None:
        runs = [settings(model), settings(other_model)]
        runner.rotate(runs, passes=1, seed=0)
        runner.close_model(str(model))
        assert len(runner.rotate(runs, passes=2, seed=0)[0]) == 2
