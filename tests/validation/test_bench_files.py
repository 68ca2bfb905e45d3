"""Other people's rows stand beside predictions, and make profiles of machines we never had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import build_engine, build_profile

from cpubound.advise.logs import read_log
from cpubound.cli import main
from cpubound.cost.predict import predict_decode
from cpubound.engine.bench_rows import read_bench_rows
from cpubound.errors import InputError
from cpubound.measuring.from_rates import rate_row
from cpubound.model.catalog import catalog_model
from cpubound.model.traffic import compute_traffic
from cpubound.profile.file import load_profile, save_profile
from cpubound.setting import Setting
from cpubound.validation.bench_files import calibrate_from, match_models, validate_from

DATA = Path(__file__).parents[1] / "data" / "llama_bench"
# ggml-org/llama.cpp pull request 11390: one machine, one model, six thread counts.
TABLE = """
| model          |       size |  params | backend    | threads |    test |               t/s |
| -------------- | ---------: | ------: | ---------- | ------: | ------: | ----------------: |
| llama 1B Q4_0  | 727.75 MiB |  1.24 B | CPU        |       1 |    tg64 |      47.84 ± 0.08 |
| llama 1B Q4_0  | 727.75 MiB |  1.24 B | CPU        |       2 |    tg64 |      87.31 ± 0.16 |
| llama 1B Q4_0  | 727.75 MiB |  1.24 B | CPU        |       4 |    tg64 |     157.63 ± 1.01 |
| llama 1B Q4_0  | 727.75 MiB |  1.24 B | CPU        |       8 |    tg64 |     237.40 ± 0.71 |

build: 6eecde3c (4621)
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.md"
    path.write_text(TABLE)
    return path


def rows_with(**fields: object) -> str:
    row = {
        **json.loads((DATA / "rows.json").read_text())[1],
        "n_threads": 2,
        **fields,
    }
    return json.dumps([row])


def test_rows_find_their_models_in_the_catalogue(table):
    rows, warnings = match_models(read_bench_rows(table))
    assert {row.spec.name for row in rows} == {"llama-3.2-1b"}
    assert [row.threads for row in rows] == [1, 2, 4, 8]
    assert not warnings


def test_rows_of_an_unknown_model_need_it_named():
    text = rows_with(model_n_params=10**9, model_size=6 * 10**8, model_filename="x.gguf")
    with pytest.raises(InputError, match=r"row 1 \(llama 256M Q4_1\): .*give the model"):
        match_models(read_bench_rows(text))


def test_a_model_of_another_size_is_not_taken_for_the_rows(table):
    with pytest.raises(InputError, match="none of the models given"):
        match_models(read_bench_rows(table), [catalog_model("llama-3.1-8b", "Q4_0")])


def test_rows_that_cannot_be_used_are_left_out_by_name():
    known = "llama 1B Q4_0  | 727.75 MiB |  1.24 B | CPU        |       8"
    text = TABLE.replace(known, "x 1B | 1.00 GiB | 3.00 B | CPU | 8")
    rows, warnings = match_models(read_bench_rows(text))
    assert len(rows) == 3
    assert warnings == ("left out: row 4 (x 1B): no model of the catalogue for certain",)


@pytest.mark.parametrize(
    ("told", "build", "type_v", "used"),
    [
        (True, 1, "f16", True),
        (None, 8664, "f16", False),
        (None, 9700, "f16", True),
        (None, None, "f16", False),
        (None, None, "q8_0", True),
    ],
)
def test_flash_attention_follows_the_build_where_the_row_does_not_tell(
    told: bool | None, build: int | None, type_v: str, used: bool
) -> None:
    """As validate and calibrate read a file, so does diagnose."""
    text = rows_with(flash_attn=told, build_number=build, type_v=type_v)
    assert match_models(read_bench_rows(text))[0][0].traffic.setting.flash_attn is used
    assert read_log(text)[0].flash_attn is used


def test_a_profile_from_rows_predicts_their_settings(table):
    profile = calibrate_from(table, cpu="Apple M4")
    assert profile.machine.cpu_model == "Apple M4"
    assert profile.machine.architecture == "aarch64"
    assert profile.fitted_to == f"4 rows of {table}"
    assert profile.engine is not None
    assert (profile.engine.version, profile.engine.build) == ("4621", "6eecde3c")
    spec = catalog_model("llama-3.2-1b", "Q4_0")
    traffic = compute_traffic(spec, Setting(depth_tokens=32, flash_attn=False))
    for threads, observed in ((1, 47.84), (4, 157.63), (8, 237.40)):
        prediction = predict_decode(profile, traffic, threads)
        assert prediction.tokens_per_s == pytest.approx(observed, rel=0.05)
        assert prediction.basis == "engine"
        assert any("nothing was measured on that machine" in a for a in prediction.assumptions)


def test_other_models_types_and_threads_are_predicted_with_wider_intervals(table):
    profile = calibrate_from(table, cpu="Apple M4")

    def width(name: str, quant: str, threads: int) -> float:
        traffic = compute_traffic(catalog_model(name, quant), Setting(flash_attn=False))
        p = predict_decode(profile, traffic, threads)
        return (p.high - p.low) / p.tokens_per_s

    own = width("llama-3.2-1b", "Q4_0", 4)
    assert width("llama-3.1-8b", "Q4_K_M", 4) > own
    assert width("llama-3.1-8b", "IQ3_XXS", 4) > 1.2 * own
    assert width("llama-3.2-1b", "Q4_0", 16) > 1.2 * own


def test_what_the_machine_could_not_tell_is_unknown(table):
    profile = calibrate_from(table)
    assert profile.machine.cpu_model is None
    assert profile.machine.usable_memory_bytes is None
    traffic = compute_traffic(catalog_model("llama-3.2-1b", "Q4_0"), Setting(flash_attn=False))
    assert predict_decode(profile, traffic, 2).fits_in_memory is None


def test_a_profile_from_rows_is_saved_and_read_like_any(table, tmp_path):
    profile = calibrate_from(table)
    save_profile(profile, tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == profile


def test_rows_of_two_machines_are_refused(tmp_path):
    rows = json.loads((DATA / "rows.json").read_text())
    rows[1]["cpu_info"] = "Cortex-A76"
    path = tmp_path / "two.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match=r"rows of 2 CPUs \(AMD EPYC, Cortex-A76\)"):
        calibrate_from(path)


def test_rows_of_two_builds_are_one_machine_with_a_warning(tmp_path):
    rows = json.loads((DATA / "rows.json").read_text())
    rows[1]["build_commit"] = "abcdef012"
    path = tmp_path / "two.json"
    path.write_text(json.dumps(rows))
    assert any("rows of 2 builds" in warning for warning in calibrate_from(path).warnings)


def test_validate_from_stands_beside_the_rows_and_names_what_differs(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text((DATA / "rows.json").read_text())
    profile = build_profile({1: 20e9, 2: 30e9}, build_engine({"Q4_1": {1: 8e9, 2: 15e9}}))
    validation = validate_from(path, profile)
    assert [cell.observed_tokens_per_s for cell in validation.cells] == [
        row.tokens_per_s for row in read_bench_rows(path) if row.is_decode
    ]
    assert [cell.prediction.setting.depth_tokens for cell in validation.cells] == [0, 8, 0, 8]
    assert validation.engine == "AMD EPYC, build 0c1e57098"
    assert any("another CPU" in warning for warning in validation.warnings)
    cell = validation.cells[0]
    assert cell.relative_error == pytest.approx(
        cell.prediction.tokens_per_s / cell.observed_tokens_per_s - 1
    )


def test_rate_rows_hold_what_a_step_moves():
    traffic = compute_traffic(
        catalog_model("llama-3.2-1b", "Q4_K_M"), Setting(depth_tokens=300, flash_attn=False)
    )
    row = rate_row(traffic, 4, 10.0)
    assert sum(row.weight_bytes.values()) == sum(traffic.matrices.values())
    assert row.kv_bytes == traffic.kv_read_bytes
    assert row.products == traffic.matrix_products


def test_the_command_line_fits_a_file_and_predicts_with_it(table, tmp_path, capsys):
    out = tmp_path / "m4.json"
    assert main(["calibrate", "--from", str(table), "--cpu", "Apple M4", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert f"Fitted to 4 rows of {table}" in text
    assert main(["predict", "llama-3.1-8b:Q4_K_M", "--profile", str(out), "-t", "4,16"]) == 0
    text = capsys.readouterr().out
    assert "no row used more than 8 threads" in text
    assert main(["validate", "--from", str(table), "--profile", str(out)]) == 0
    assert "4 of 4 inside the interval" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("calibrate", "--from", "{table}"), 2, "give it with|--out FILE"),
        (("calibrate", "--cpu", "Apple M4"), 2, "--from FILE"),
        (("validate",), 2, "no model given"),
        (("calibrate", "--from", "no-such-file", "--out", "{out}"), 3, "no-such-file"),
        (("validate", "--from", "{table}", "--profile", "none.json"), 3, "no such profile"),
    ],
)
def test_what_does_not_go_together_is_refused(table, tmp_path, capsys, arguments, code, message):
    filled = [a.format(table=table, out=tmp_path / "out.json") for a in arguments]
    assert main(filled) == code
    error = capsys.readouterr().err
    assert any(part in error for part in message.split("|"))
