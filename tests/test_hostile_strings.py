"""Strings from outside, through the real commands: no format shows them as more than a text."""

from __future__ import annotations

import csv
import html
import io
import json
import lzma
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from builders import build_validation, standard_profile
from fake_machine import build_server
from gguf_bytes import STRING, U32, GgufBytes, TensorInfo, pair
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kept import DATA
from markdown_it import MarkdownIt
from odd import CLEAR, HOSTILE_TEXTS, assert_shown, is_formula

from cpubound import api
from cpubound.cli import main
from cpubound.foreign import hide_credentials, shell_word, visible
from cpubound.profile.file import load_profile, profile_document, save_profile
from cpubound.report import advice, markup, tables
from cpubound.report.charts.checks import chart_validation
from cpubound.report.charts.files import draw
from cpubound.report.charts.machine import chart_scaling
from cpubound.report.charts.models import chart_predictions
from cpubound.report.tables import Table, render_table

HOSTILE = DATA / "hostile"
STYLES = ("table", "markdown", "csv", "json")
TEXTS = st.one_of(
    st.sampled_from(HOSTILE_TEXTS),
    st.lists(st.sampled_from((*HOSTILE_TEXTS, "|", "\n", "`", "$", "x")), max_size=5).map("".join),
    st.text(max_size=60),
)
# Markup of other kinds than a table and a paragraph would be somebody else's.
_OWN_TAGS = re.compile(r"</?(p|br /|table|thead|tbody|tr|(th|td)( style=\"text-align:\w+\")?)>")
FREE_FIELDS = {
    "cpu_model", "architecture", "operating_system", "governor", "hypervisor", "created",
    "frequency_driver", "version", "build", "note", "causes", "warnings", "fitted_to",
    "cpubound_version", "energy_preference", "platform_profile", "cpu_vendor",
}  # fmt: skip

some = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPUBOUND_HOME", str(tmp_path / "home"))
    save_profile(standard_profile(), tmp_path / "home" / "profile.json")
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def check_every_format(*arguments: str) -> dict[str, str]:
    """Run a command in each format, and return what it printed."""
    printed = {}
    for style in STYLES:
        code, out, err = run(*arguments, "--format", style)
        assert_shown(out)
        assert_shown(err)
        if code:
            assert (code, out, err.count("\n")) == (3, "", 1), err
        else:
            CHECKS[style](out)
        printed[style] = out + err
    return printed


def check_table(out: str) -> None:
    assert out.endswith("\n")


def check_markdown(out: str) -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tags = set(re.findall(r"<[^>]*>", rendered.render(out)))
    assert all(_OWN_TAGS.fullmatch(tag) for tag in tags), tags


def check_csv(out: str) -> None:
    rows = list(csv.reader(io.StringIO(out)))
    assert len({len(row) for row in rows}) == 1
    assert not [cell for row in rows for cell in row if is_formula(cell)]


def check_json(out: str) -> None:
    json.loads(out)


CHECKS = dict(zip(STYLES, (check_table, check_markdown, check_csv, check_json), strict=True))


def model_bytes(architecture: str) -> bytes:
    """A model of one layer that says it is of this architecture."""
    counts = {"block_count": 1, "embedding_length": 32, "attention.head_count": 1}
    names = ("token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "output")
    return GgufBytes(
        pairs=[
            pair("general.architecture", STRING, architecture.encode("utf-8", "replace")),
            *(pair(f"{architecture}.{k}".encode("utf-8", "replace").decode(), U32, v)
              for k, v in counts.items()),
        ],
        tensors=[
            TensorInfo(name=f"{name}.weight", shape=(32, 4), offset=512 * place)
            for place, name in enumerate(names)
        ],
        data_bytes=512 * len(names),
    ).packed()  # fmt: skip


def hostile_values(value: Any, text: str, key: str = "") -> Any:
    """Return a document with the text in place of every string that means nothing to us."""
    if isinstance(value, dict):
        return {name: hostile_values(item, text, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [hostile_values(item, text, key) for item in value]
    return text if isinstance(value, str) and key in FREE_FIELDS else value


@some
@given(TEXTS)
def test_an_architecture_is_only_a_text(text: str) -> None:
    Path("m.gguf").write_bytes(model_bytes(text))
    printed = check_every_format("inspect", "m.gguf")
    known = text.encode("utf-8", "replace").decode()
    if printed["json"].startswith("{"):
        assert json.loads(printed["json"])["architecture"] == known
        assert visible(known) in printed["table"]
        shown = MarkdownIt().enable("table").render(printed["markdown"])
        assert "".join(visible(known).split()) in "".join(html.unescape(shown).split())
    check_every_format("doctor", "--model", "m.gguf")


@some
@given(TEXTS)
def test_a_file_name_is_only_a_text(text: str) -> None:
    name = re.sub("[/\0]", "_", text)[:40] + ".gguf"
    path = name if _is_file_name(name) else "plain.gguf"
    (Path.cwd() / path).write_bytes(model_bytes("llama"))
    argument = str(Path.cwd() / path)
    for command in ("inspect", "predict", "tune"):
        check_every_format(command, argument)
    check_every_format("diagnose", argument, "--observed", "3", "-t", "2")
    check_every_format("inspect", f"{argument}.missing")


def _is_file_name(name: str) -> bool:
    try:
        return len(os.fsencode(name)) < 200
    except UnicodeEncodeError:
        return False


@some
@given(TEXTS.filter(lambda text: text.encode("utf-8", "replace").decode() == text))
def test_the_strings_of_a_profile_are_only_texts(text: str) -> None:
    document = hostile_values(profile_document(standard_profile()), text)
    Path("p.json").write_text(json.dumps(document))
    check_every_format("predict", "llama-3.2-1b:Q4_0", "--profile", "p.json")
    check_every_format("tune", "llama-3.2-1b:Q4_0", "--profile", "p.json")
    check_every_format("compare", "p.json", "home/profile.json", "llama-3.2-1b:Q4_0")
    check_every_format("roofline", "llama-3.2-1b:Q4_0", "--profile", "p.json")
    check_every_format("predict", "llama-3.2-1b", "--profile", "p.json", "--what-if", "quant=Q8_0")
    observed = ("--observed", "9", "-t", "2", "--profile", "p.json")
    check_every_format("diagnose", "llama-3.2-1b:Q4_0", *observed)


@some
@given(TEXTS)
def test_the_strings_of_bench_rows_are_only_texts(text: str) -> None:
    row = {
        "cpu_info": text, "build_commit": text, "build_number": 1, "backends": "CPU",
        "model_filename": text, "model_type": "llama 1B Q4_0", "model_size": 770928640,
        "model_n_params": 1235814400, "n_threads": 2, "type_k": "f16", "type_v": "f16",
        "n_prompt": 0, "n_gen": 128, "avg_ts": 10.0, "stddev_ts": 0.1,
    }  # fmt: skip
    Path("rows.json").write_text(json.dumps([row, row]))
    check_every_format("calibrate", "--from", "rows.json", "--out", "q.json", "--force")
    check_every_format("validate", "--from", "rows.json")
    Path("rows.json").write_text(json.dumps([{**row, "model_type": text, "type_k": text}]))
    check_every_format("validate", "--from", "rows.json")


@some
@given(TEXTS)
def test_the_machine_files_of_a_sysroot_are_only_texts(home: Path, text: str) -> None:
    fake = build_server(home / "root", packages=1, cores=1, threads=1)
    raw = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    fake.write("/proc/cpuinfo", f"processor: 0\nmodel name: {raw}\nvendor_id: {raw}\nflags: avx2")
    fake.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", raw)
    fake.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", raw)
    fake.write("/sys/firmware/acpi/platform_profile", raw)
    fake.write("/sys/hypervisor/type", raw)
    check_every_format("doctor", "--sysroot", str(home / "root"))


@some
@given(TEXTS)
@example("0")  # a KV type that is none
def test_the_lines_of_a_log_are_only_texts(text: str) -> None:
    raw = text.encode("utf-8", "replace").decode()
    Path("log").write_text(
        f"loading model '{raw}'\nn_threads = 2\nK ({raw}): 1 V ({raw}): 1\n{raw}\n"
        "eval time = 1000.00 ms / 10 runs\n",
        encoding="utf-8",
    )
    check_every_format("diagnose", "llama-3.2-1b:Q4_0", "--from-log", "log")
    Path("log").write_text(raw, encoding="utf-8")
    check_every_format("diagnose", "llama-3.2-1b:Q4_0", "--from-log", "log")


@given(TEXTS)
def test_a_cell_stays_one_cell(text: str) -> None:
    table = Table(columns=("a", "b"), rows=((text, "1"), ("x", text)))
    check_csv(render_table(table, "csv"))
    check_markdown(render_table(table, "markdown"))
    assert render_table(table).count("\n") == 2
    tokens = MarkdownIt().enable("table").parse(render_table(table, "markdown"))
    assert sum(token.type == "td_open" for token in tokens) == 4


@given(TEXTS)
def test_a_document_holds_the_true_string_in_printable_characters(text: str) -> None:
    written = markup.json_text({"name": text, text: float("nan")})
    assert_shown(written)
    if "@" not in text and "?" not in text:
        assert json.loads(written)["name"] == text
        assert json.loads(written)[text] is None or text == "name"


@given(TEXTS)
def test_what_is_visible_stays_so_and_plain_texts_are_left_alone(text: str) -> None:
    assert visible(visible(text)) == visible(text)
    assert visible(text).isprintable()
    assert visible("Llama-3.1 8B (é, 漢字, 🙂)") == "Llama-3.1 8B (é, 漢字, 🙂)"


@given(TEXTS)
def test_a_command_takes_a_name_as_one_word_or_leaves_it_out(text: str) -> None:
    word = shell_word(text)
    assert word.isprintable()
    (read,) = shlex.split(word)
    assert read in (text, f"./{text}", "MODEL")
    assert not read.startswith("-")


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_no_picture_of_a_text_stops_being_xml(text: str) -> None:
    document = profile_document(standard_profile())
    known = text.encode("utf-8", "replace").decode()
    Path("p.json").write_text(json.dumps(hostile_values(document, known)))
    loaded = load_profile("p.json")
    p = api.predict("llama-3.2-1b:Q4_0", profile=loaded)
    p = msgspec.structs.replace(p, model=text, quant_label=text)
    for svg in (
        draw(chart_predictions([p], [p], loaded), ".svg", 180),
        draw(chart_scaling(loaded), ".svg", 180),
        draw(chart_validation(build_validation(p, engine=text), loaded), ".svg", 180),
    ):
        texts = [element.text or "" for element in ElementTree.fromstring(svg).iter()]
        assert all(line.isprintable() for found in texts for line in found.split("\n"))


def test_every_function_of_report_that_writes_text_shows_its_strings() -> None:
    own_words = {
        ("advice", "advice_text"), ("findings", "wrap_parts"), ("predictions", "format_depth"),
        ("predictions", "format_interval"), ("traffic", "format_kv_types"),
        ("type_rates", "share_bar"),
    }  # fmt: skip
    writes = {"str", "bytes", "list[str]", "tuple[Block, ...]"}
    found = [
        (name, function.__name__)
        for name, function in public_functions()
        if function.__annotations__.get("return") in writes and not hasattr(function, "shows")
    ]
    assert set(found) == own_words
    assert hasattr(advice._screen, "shows")


def public_functions() -> Iterator[tuple[str, Any]]:
    folder = Path(tables.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if path.stem in ("__init__", "tables", "markup"):
            continue
        module = import_module(f"cpubound.report.{path.stem}")
        for name, value in vars(module).items():
            is_own = isfunction(value) and value.__module__ == module.__name__
            if is_own and not name.startswith("_"):
                yield path.stem, value


def unpacked(name: str, folder: Path) -> str:
    path = folder / name
    path.write_bytes(lzma.decompress((HOSTILE / f"{name}.xz").read_bytes()))
    return str(path)


def test_an_architecture_with_escape_sequences_is_shown_escaped_everywhere(home: Path) -> None:
    path = unpacked("arch_nl.gguf", home)
    for command in ("inspect", "predict", "tune", "roofline"):
        check_every_format(command, path)
    _, out, _ = run("inspect", path)
    assert "llama\\x1b[2J" in out
    assert "\nCheck it:  curl" not in out


def test_a_model_that_claims_no_attention_heads_is_one_clear_error(home: Path) -> None:
    code, out, err = run("inspect", unpacked("heads0.gguf", home))
    assert (code, out) == (3, "")
    assert "0 attention heads" in err


def test_rows_with_escape_sequences_are_shown_escaped() -> None:
    rows = str(HOSTILE / "rows.csv")
    printed = check_every_format("calibrate", "--from", rows, "--out", "q.json", "--force")
    assert "CPU\\x1b[2J" in printed["table"]
    check_every_format("predict", "llama-3.2-1b:Q4_0", "--profile", "q.json")


@pytest.mark.parametrize(
    "address",
    [
        "http://user:hunter2@host/x.gguf",
        "https://hunter2@host:99999/x.gguf?a=hunter2",
        "HTTP://u:hunter2@[::1/x.gguf",
        "https:/u:hunter2@host/x.gguf",
        "http://host.invalid:0/x.gguf?token=hunter2#hunter2",
        "http://u:p/hunter2@host/x",
    ],
)
def test_credentials_in_an_address_are_never_printed(address: str) -> None:
    for command in ("inspect", "predict", "tune", "roofline", "breakdown", "validate"):
        code, out, err = run(command, address)
        assert code in (2, 3)
        assert "hunter2" not in out + err
    assert "hunter2" not in hide_credentials(f"cannot be fetched ({address}): try again")


def test_a_text_of_any_length_is_cut_where_it_is_shown() -> None:
    assert len(visible("x" * 10**7)) < 10_000
    assert visible(CLEAR) == r"\x1b[2J\x1b]0;title\x07"
