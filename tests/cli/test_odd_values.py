"""Every option of every command, as click knows them, with values that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from builders import standard_profile
from odd import ODD_NUMBERS, ODD_VALUES, assert_shown

from cpubound import bounds
from cpubound.cli import COMMANDS, group, main
from cpubound.errors import EngineUnavailable
from cpubound.profile.file import save_profile

Run = Callable[..., tuple[int, str, str]]

# What a command needs beside the option that is tried.
NEEDED = {
    "calibrate": ["--no-engine"],
    "predict": ["llama-3.2-1b:Q4_0"],
    "validate": ["smollm2-135m:Q4_0"],
    "tune": ["llama-3.2-1b:Q4_0"],
    "diagnose": ["llama-3.2-1b:Q4_0", "--observed", "20", "--threads", "2"],
    "breakdown": ["smollm2-135m:Q4_0"],
    "inspect": ["llama-3.2-1b:Q4_0"],
    "doctor": [],
    "compare": ["home/profile.json", "home/profile.json", "llama-3.2-1b:Q4_0"],
    "roofline": ["llama-3.2-1b:Q4_0"],
    "report": ["llama-3.2-1b:Q4_0", "--force"],
    "show": [],
    "synth": ["smollm2-135m:Q4_0", "-o", "new.gguf"],
}
RUNS_A_MODEL = (
    "cpubound.api.calibrate",
    "cpubound.api.validate",
    "cpubound.api.validate_prompts",
    "cpubound.api.breakdown",
    "cpubound.api.diagnose_live",
    "cpubound.engine.synth.write_model",
    # It runs none, but draws for seconds.
    "cpubound.report.page.render.render_report",
)
EXIT_CODES = {0, 1, 2, 3, 4}


def command_named(name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def parameters(kind: type[click.Parameter]) -> list[tuple[str, str]]:
    """Return command and name of every parameter that takes a value."""
    return [
        (name, parameter.opts[0])
        for name in COMMANDS
        for parameter in command_named(name).params
        if isinstance(parameter, kind) and not getattr(parameter, "is_flag", False)
    ]


@pytest.fixture(autouse=True)
def nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder with a profile; whatever would run a model is not there."""

    def refuse(*_: object, **__: object) -> None:
        raise EngineUnavailable("not run")

    for name in RUNS_A_MODEL:
        monkeypatch.setattr(name, refuse)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    save_profile(standard_profile(), tmp_path / "home" / "profile.json")


def test_every_command_has_a_line_here() -> None:
    assert set(NEEDED) == set(COMMANDS)


@pytest.mark.parametrize(("command", "option"), parameters(click.Option))
def test_an_odd_value_of_an_option_gives_a_result_or_one_clear_error(
    invoke: Run, command: str, option: str
) -> None:
    for value in ODD_VALUES:
        check(invoke, command, *NEEDED[command], f"{option}={value}" if option[1] == "-" else value)


@pytest.mark.parametrize(("command", "_argument"), parameters(click.Argument))
def test_an_odd_argument_gives_a_result_or_one_clear_error(
    invoke: Run, command: str, _argument: str
) -> None:
    for value in ODD_VALUES:
        check(invoke, command, "--", value, *NEEDED[command][1:])


@pytest.mark.parametrize("name", ["bandwidth", "channels", "memory", "threads", "depth", "quant"])
def test_an_odd_value_of_a_what_if_gives_a_result_or_one_clear_error(
    invoke: Run, name: str
) -> None:
    for value in (*ODD_VALUES, *(f"{number}x" for number in ODD_NUMBERS)):
        check(invoke, "predict", *NEEDED["predict"], "--what-if", f"{name}={value}")


@pytest.mark.parametrize("value", ODD_NUMBERS)
def test_memory_of_an_odd_speed_gives_a_result_or_one_clear_error(invoke: Run, value: str) -> None:
    check(invoke, "predict", *NEEDED["predict"], "--what-if", f"memory=DDR5-{value}x{value}")
    check(invoke, "roofline", *NEEDED["roofline"], "--machine", f"ddr5-{value}-{value}ch")


@pytest.mark.parametrize("value", ODD_VALUES)
def test_an_odd_command_or_option_is_one_clear_error(invoke: Run, value: str) -> None:
    code, _, err = invoke(value)
    assert code in (0, 2)
    assert_shown(err)
    check(invoke, "predict", f"--{value}")


def check(invoke: Run, *arguments: str) -> None:
    code, out, err = invoke(*arguments)
    assert code in EXIT_CODES, arguments
    assert_shown(out)
    assert_shown(err)
    if code > 1:
        assert err.startswith("cpubound: error: "), err
        assert err.count("\n") == 1


def test_more_settings_than_a_command_works_out_are_refused_before_any(invoke: Run) -> None:
    many = ",".join(map(str, range(1, 200)))
    for command in ("predict", "validate", "compare", "roofline"):
        lists = ["--batch", many, "--ctx" if command == "roofline" else "--depth", many]
        if command == "compare":
            lists[0] = "--threads"
        code, out, err = invoke(command, *NEEDED[command], *lists)
        assert (code, out) == (2, "")
        assert str(bounds.SETTINGS) in err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_an_output_without_our_characters_gets_plain_ones(
    encoding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    with place.open("w", encoding=encoding) as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(("tune", "llama-3.2-1b:Q4_0")) == 0
        assert encoding == "ascii" or main(("predict", "--help")) == 0  # click writes UTF-8 there
        assert main(("doctor", "--format", "markdown")) == 0
    text = place.read_text(encoding=encoding)
    assert ("→" in text) == (encoding == "utf-8")
    assert "tok/s" in text
