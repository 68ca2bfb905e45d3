"""What llama-bench prints is read whatever its format, its age, and what stands around it.

``data/llama_bench/rows.*`` were printed by llama-bench of commit 0c1e57098bba for
SmolLM2-135M with ``-p 4 -n 4 -r 2 -t 1,2 -d 0,8``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpubound import bounds
from cpubound.engine.bench_rows import (
    BenchRow,
    decode_rows_on_cpu,
    group_by_source,
    read_bench_rows,
)
from cpubound.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "llama_bench"
TESTS = ["pp4", "tg4", "pp4 @ d8", "tg4 @ d8"] * 2

# The fields of a build of 2023, before backends, n_ubatch, types of K and V, and depth.
OLD = {
    "build_commit": "3469684",
    "build_number": 1275,
    "cuda": False,
    "metal": False,
    "gpu_blas": False,
    "blas": True,
    "cpu_info": "13th Gen Intel(R) Core(TM) i9-13900K",
    "gpu_info": "",
    "model_filename": "models/7B/ggml-model-q4_0.gguf",
    "model_type": "llama 7B mostly Q4_0",
    "model_size": 3825065984,
    "model_n_params": 6738415616,
    "n_batch": 512,
    "n_threads": 16,
    "f16_kv": True,
    "n_gpu_layers": 99,
    "n_prompt": 0,
    "n_gen": 128,
    "avg_ns": 6400000000,
    "stddev_ns": 1000000,
    "avg_ts": 20.0,
    "stddev_ts": 0.1,
    "samples_ns": [6400000000, 6400000000],
}

TABLE = """
I see this on my board:

> | model | size | params | backend | threads | fa | test | t/s |
> | --- | ---: | ---: | --- | ---: | -: | ---: | ---: |
> | llama 8B Q4_K - Medium |  4.58 GiB | 8.03 B | CPU |  4 |  1 | tg 128 @ d512 | **2.71 ± 0.05** |

> | llama 8B Q4_K - Medium |   4.58 GiB | 8.03 B | CPU |   4 |  1 | pp64+tg16 | 3.10 Â± 0.05 |
`| llama 1B Q8_0 | 636.18 MiB | 1.10 B | CPU | 4 | 0 | tg32@pp256 | 9.5 |`

build: 6eecde3c (4621)
"""


def replaced(**fields: object) -> str:
    return json.dumps([{**OLD, **fields}])


def test_each_format_gives_the_same_tests_in_the_same_order():
    for suffix in ("json", "jsonl", "sql", "csv", "md"):
        rows = read_bench_rows(DATA / f"rows.{suffix}")
        assert [row.test for row in rows] == TESTS, suffix
        assert [row.n_threads for row in rows] == [1] * 4 + [2] * 4
        assert {row.model_type for row in rows} == {"llama 256M Q4_1"}
        assert {row.build_commit for row in rows} == {"0c1e57098"}
        assert all(row.backends == ("CPU",) and not row.gpu_backends for row in rows)


def test_json_keeps_sizes_samples_and_settings():
    row = read_bench_rows(DATA / "rows.json")[0]
    assert (row.model_size_bytes, row.model_parameters) == (96576768, 134515008)
    assert row.samples_tokens_per_s == (136.86, 138.793)
    assert (row.type_k, row.type_v, row.flash_attn, row.repack) == ("f16", "f16", True, True)
    assert row.cpu_info == "AMD EPYC"
    assert (row.n_batch, row.n_ubatch, row.mmap) == (2048, 512, True)


def test_a_table_rounds_sizes_and_tells_no_cpu():
    row = read_bench_rows(DATA / "rows.md")[1]
    assert row.model_size_bytes == round(92.10 * 2**20)
    assert row.model_parameters == 134520000
    assert (row.tokens_per_s, row.stddev_tokens_per_s) == (78.11, 5.81)
    assert row.cpu_info is None
    assert row.flash_attn is None


def test_a_table_is_found_amid_prose_with_quotes_gaps_and_broken_signs():
    rows = read_bench_rows(TABLE)
    assert [row.test for row in rows] == ["tg128 @ d512", "pp64+tg16", "tg32 @ d256"]
    assert [row.tokens_per_s for row in rows] == [2.71, 3.10, 9.5]
    assert [row.stddev_tokens_per_s for row in rows] == [0.05, 0.05, None]
    assert [row.flash_attn for row in rows] == [True, True, False]
    assert {(row.build_commit, row.build_number) for row in rows} == {("6eecde3c", 4621)}


def test_a_build_above_its_tables_is_theirs():
    above = "`build: 9c699074c (8664)`\n" + TABLE.replace("build: 6eecde3c (4621)", "")
    assert {row.build_number for row in read_bench_rows(above)} == {8664}


def test_two_builds_and_two_machines_are_told_apart():
    table = TABLE + TABLE.replace("6eecde3c (4621)", "abcdef01 (4700)")
    groups = group_by_source(read_bench_rows(table))
    assert [(source.build_number, len(rows)) for source, rows in groups.items()] == [
        (4621, 3),
        (4700, 3),
    ]
    machines = json.dumps([OLD, {**OLD, "cpu_info": "Cortex-A76"}])
    assert [str(source) for source in group_by_source(read_bench_rows(machines))] == [
        "13th Gen Intel(R) Core(TM) i9-13900K, build 3469684",
        "Cortex-A76, build 3469684",
    ]


def test_an_old_build_says_less():
    row = read_bench_rows(json.dumps([OLD]))[0]
    assert (row.type_k, row.type_v) == ("f16", "f16")
    assert (row.n_depth, row.n_ubatch, row.flash_attn) == (0, None, None)
    assert row.samples_tokens_per_s == (20.0, 20.0)
    assert row.gpu_backends == ()
    assert row.mean_depth_tokens == 64


def test_the_rate_follows_from_the_samples_where_it_is_missing():
    text = json.dumps([{**OLD, "avg_ts": None}])
    assert read_bench_rows(text)[0].tokens_per_s == pytest.approx(20.0)


def test_logs_around_json_and_an_interrupted_run_are_passed_over():
    text = (DATA / "rows.json").read_text()
    logged = "ggml_init: [cpu] loading\n" + text + "\nllama_free: done [1]\n"
    assert len(read_bench_rows(logged)) == 8
    cut = text[: text.index('"samples_ns"', text.index('"n_depth": 8'))]
    assert [row.test for row in read_bench_rows(cut)] == ["pp4", "tg4"]


def test_redirected_by_powershell_it_is_utf_16(tmp_path):
    path = tmp_path / "rows.json"
    path.write_bytes((DATA / "rows.json").read_text().encode("utf-16"))
    assert len(read_bench_rows(path)) == 8


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"backends": "CUDA", "n_gpu_layers": 99}, ("CUDA",)),
        ({"backends": "CUDA", "n_gpu_layers": 0}, ()),
        ({"backends": "BLAS,MTL", "n_gpu_layers": -1}, ("MTL",)),
        ({"backends": "CPU", "n_gpu_layers": 99}, ()),
        ({"backends": "CUDA", "devices": "none"}, ()),
        ({"cuda": True}, ("CUDA",)),
        ({"metal": 1, "n_gpu_layers": 0}, ()),
    ],
)
def test_a_gpu_counts_where_layers_may_have_gone_to_it(fields, gpus):
    assert read_bench_rows(replaced(**fields))[0].gpu_backends == gpus


def test_gpu_rows_are_refused_by_name():
    rows = read_bench_rows(replaced(backends="CUDA"))
    with pytest.raises(InputError, match=r"row 1 ran on a GPU or may have \(CUDA\): .*-ngl 0"):
        decode_rows_on_cpu(rows)


def test_rows_without_decoding_are_refused():
    rows = read_bench_rows(replaced(n_prompt=512, n_gen=0))
    with pytest.raises(InputError, match="no row times decoding"):
        decode_rows_on_cpu(rows)


def test_only_decoding_is_kept():
    kept = decode_rows_on_cpu(read_bench_rows(DATA / "rows.csv"))
    assert [row.test for row in kept] == ["tg4", "tg4 @ d8"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no llama-bench rows"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "no llama-bench rows"),
        (replaced(avg_ts=-1.0), "avg_ts"),
        (replaced(avg_ts="nan"), "avg_ts"),
        (replaced(avg_ts=1e300), "avg_ts"),
        (replaced(n_threads=10**6), "n_threads"),
        (replaced(n_depth=10**12), "n_depth"),
        (replaced(n_gen=1.5), "n_gen"),
        (replaced(n_gen=0), "neither"),
        (replaced(samples_ns="many"), "samples_ns is no list"),
        (replaced(samples_ns=[0]), "samples_ns"),
        (replaced(model_type={}), "model_type"),
        (replaced(flash_attn="perhaps"), "flash_attn"),
        ('[{"avg_ts": 1, "n_gen": ,', "line 1"),
        ('{"avg_ts": ' + '[{"a":' * 100_000, "line 1"),
        (TABLE.replace("| 9.5 |", "| fast |"), "line 9: t/s 'fast'"),
        (TABLE.replace("tg32@pp256", "all"), "line 9: test 'all'"),
        (TABLE.replace("| CPU | 4 | 0 |", "| CPU | 0 |"), "line 9: 7 cells under 8"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as refused:
        read_bench_rows(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_table_with_decimal_commas_is_read():
    text = (DATA / "rows.md").read_text()
    with_commas = re.sub(r"(\d)\.(\d)", r"\1,\2", text)
    assert with_commas != text
    assert read_bench_rows(with_commas) == read_bench_rows(text)


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "rows"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a file"):
        read_bench_rows(pipe)


def test_a_file_that_is_missing_or_huge_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_bench_rows(tmp_path / "none.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(bounds.PRINTED_BYTES + 1)
    with pytest.raises(InputError, match="too large"):
        read_bench_rows(huge)


@given(st.data())
def test_a_file_cut_and_stirred_anywhere_gives_rows_or_one_error(data):
    suffix = data.draw(st.sampled_from(["json", "jsonl", "sql", "csv", "md"]))
    text = (DATA / f"rows.{suffix}").read_text()
    at = data.draw(st.integers(0, len(text)))
    drop = data.draw(st.integers(0, 200))
    stirred = text[:at] + data.draw(st.text(max_size=20)) + text[at + drop :]
    try:
        rows = read_bench_rows(stirred)
    except InputError:
        return
    assert all(isinstance(row, BenchRow) and row.tokens_per_s > 0 for row in rows)
