"""Bounds of every kind of input: told in one table, kept, and reached in linear work."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_bytes import ARRAY, STRING, U8, U16, U32, GgufBytes, TensorInfo, array, pair, string
from kept import PROJECT
from steps import assert_linear, count_steps

from cpubound import bounds
from cpubound.advise.logs import read_log, read_log_file
from cpubound.engine.bench_rows import read_bench_rows
from cpubound.errors import CpuboundError, InputError, ModelFileError, ProfileError, UsageError
from cpubound.model.gguf import read_gguf, shard_names
from cpubound.model.resolve import resolve_model
from cpubound.model.stores import folders
from cpubound.model.traffic import prompt_steps
from cpubound.profile.file import decode_profile, load_profile
from cpubound.profile.keeping import keep_profile
from cpubound.report.tables import Table, render_table
from cpubound.setting import Setting

ROW = {"avg_ts": 10.0, "n_gen": 128, "n_prompt": 0, "n_threads": 2, "model_type": "x"}
MARKDOWN = "| model | threads | test | t/s |\n| --- | --- | --- | --- |\n"


def test_the_documentation_has_the_table_of_bounds() -> None:
    table = Table(columns=("input", "bound on", "at most"), rows=bounds.BOUNDS)
    text = render_table(table, "markdown")
    assert text in (PROJECT / "docs" / "reliability.md").read_text(encoding="utf-8"), text


# Each makes a text of n parts.
TEXTS: dict[str, Callable[[int], str]] = {
    "blank lines": lambda n: "\n" * n,
    "blank lines before rows": lambda n: "\n" * n + json.dumps(ROW),
    "white space": lambda n: " \t" * n,
    "rows": lambda n: "\n".join([json.dumps(ROW)] * n),
    "markdown rows": lambda n: MARKDOWN + "| x | 2 | tg128 | 10.0 |\n" * n,
    "csv rows": lambda n: "avg_ts,n_gen,n_prompt\n" + "10,128,0\n" * n,
    "open brackets": lambda n: '"avg_ts":' + "[" * n,
    "open objects": lambda n: '"avg_ts":' + '{"a":' * n,
    "digits": lambda n: "9" * n,
    "log lines": lambda n: "eval time = 10.0 ms / 5 runs\n" * n,
    "almost log lines": lambda n: "eval time = " * n,
    "ollama lines": lambda n: "eval rate: 12.3 tokens/s\n" * n,
    "answers": lambda n: '{"eval_count": 5, "eval_duration": 100}\n' * n,
    "broken answers": lambda n: '{"eval_count" ' * n,
    "bars": lambda n: "|" * n,
    "escapes": lambda n: "\x1b[" * n,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("read", [read_bench_rows, read_log])
def test_the_steps_of_reading_a_text_grow_with_its_length(
    name: str, read: Callable[[str], object]
) -> None:
    make = TEXTS[name]

    def reading(n: int) -> Callable[[], object]:
        text = make(n)
        return lambda: read(text)

    assert_linear(reading)


def nested(count: int) -> bytes:
    """A key whose array holds ``count`` empty arrays."""
    head = string("a") + struct.pack("<IIQ", ARRAY, ARRAY, count)
    return head + struct.pack("<IQ", U8, 0) * count


def test_the_steps_of_reading_a_header_grow_with_its_entries(tmp_path: Path) -> None:
    def reading(n: int) -> Callable[[], object]:
        tensors = [TensorInfo(name=f"t{i}", shape=(32,), offset=128 * i) for i in range(n)]
        path = tmp_path / f"{n}.gguf"
        path.write_bytes(GgufBytes(tensors=tensors, data_bytes=128 * n).packed())
        return lambda: read_gguf(path)

    assert_linear(reading)


def test_arrays_of_nothing_inside_arrays_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MODEL_ENTRIES", 100)
    architecture = pair("general.architecture", STRING, "llama")
    path = tmp_path / "m.gguf"
    path.write_bytes(GgufBytes(pairs=[architecture, nested(60)]).packed())
    read_gguf(path)
    twice = [architecture, nested(60), nested(60).replace(b"a", b"b", 1)]
    path.write_bytes(GgufBytes(pairs=twice).packed())
    with pytest.raises(ModelFileError, match="too many arrays"):
        read_gguf(path)


def write_shards(folder: Path, count: int, tensors: int) -> str:
    names = shard_names(str(folder / f"m-00001-of-{count:05d}.gguf"), count)
    for number, name in enumerate(names):
        content = GgufBytes(
            pairs=[
                pair("general.architecture", STRING, "llama"),
                pair("split.no", U16, number),
                pair("split.count", U16, count),
                array("kept", U32, list(range(500))),
            ],
            tensors=[
                TensorInfo(name=f"s{number}.t{i}", shape=(32,), offset=128 * i)
                for i in range(tensors)
            ],
            data_bytes=128 * tensors,
        )
        Path(name).write_bytes(content.packed())
    return names[0]


@pytest.mark.parametrize(("bound", "value"), [("MODEL_ENTRIES", 50), ("MODEL_HEADER_BYTES", 9000)])
def test_shards_are_bounded_together_and_given_up_at_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    first = write_shards(tmp_path, 40, 20)
    assert len(read_gguf(first).tensors) == 800
    whole = count_steps(lambda: read_gguf(first))
    monkeypatch.setattr(bounds, bound, value)
    with pytest.raises(ModelFileError, match="shards claim"):
        read_gguf(first)
    assert count_steps(lambda: read_gguf(first)) < whole / 4


def test_a_prompt_beyond_every_model_is_refused_before_any_step() -> None:
    spec = resolve_model("smollm2-135m:Q4_0")
    assert len(prompt_steps(spec, 2000, Setting())) == 4
    with pytest.raises(UsageError, match="so long"):
        prompt_steps(spec, bounds.PROMPT_TOKENS + 1, Setting())


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"schema": "cpubound.profile/2", "machine": ' + b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"schema": ' + b"9" * 5000 + b"}",
        b'{"schema": "cpubound.profile/2", "created": 1e400}',
        b'{"schema": "\\ud800"}',
        b"\xff\xfe",
    ],
)
def test_a_profile_of_nested_brackets_is_refused_and_costs_no_measurement(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from builders import standard_profile

    with pytest.raises(ProfileError):
        decode_profile(content, "x")
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path))
    (tmp_path / "profile.json").write_bytes(content)
    keep_profile(standard_profile())
    assert load_profile().machine == standard_profile().machine
    assert [path.read_bytes() for path in tmp_path.glob("profile-*.json")] == [content]


def test_a_config_of_nested_brackets_or_long_numbers_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"hidden_size": ' + "9" * 5000 + "}", "{}"):
        path.write_text(text)
        with pytest.raises(CpuboundError):
            resolve_model(str(path))


def test_a_log_beyond_memory_is_read_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PRINTED_BYTES", 1000)
    monkeypatch.setattr(Path, "read_text", None)
    monkeypatch.setattr(Path, "read_bytes", None)
    path = tmp_path / "log"
    with path.open("w") as file:
        file.write("loading model 'm.gguf'\n" + "x" * 5000 + " eval time = 1.0 ms / 1 runs\n")
        file.write("noise = 1\n" * 1000 + "eval time = 1000.0 ms / 20 runs\n")
    (run,) = read_log_file(path)
    assert (run.model, run.tokens_per_s) == ("m.gguf", 20.0)
    path.write_bytes(b"eval count: 5 token(s)\n" * 100 + b"eval rate: 12.5 tokens/s\n")
    (run,) = read_log_file(path)
    assert run.tokens_per_s == 12.5
    monkeypatch.setattr(bounds, "ROWS", 3)
    path.write_bytes(b"eval time = 1000.0 ms / 20 runs\n" * 100)
    with pytest.raises(InputError, match="more than 3 runs"):
        read_log_file(path)


def test_a_store_of_many_folders_is_looked_through_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "STORE_FOLDERS", 5)
    for number in range(20):
        folder = tmp_path / f"{number:02d}"
        folder.mkdir()
        (folder / "m.gguf").touch()
    assert len(list(folders.find_models(tmp_path))) == 4
