"""What llama-bench printed, in any of its formats and versions, as rows.

Fields came and went over the years (``test::get_fields`` of ``tools/llama-bench/llama-bench.cpp``,
llama.cpp commit 0c1e57098bba, and the booleans ``cuda``, ``metal``, … of builds before 2025):
what a file does not say is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpubound import bounds
from cpubound.engine.bench_formats import UnreadableEntry, read_entries
from cpubound.errors import InputError
from cpubound.llama_facts import needs_flash_attn

MAX_NUMBER = 2**62
MAX_TOKENS = 2**27
MAX_THREADS = 2**16
# Backends that leave the work of a token to the CPU.
CPU_BACKENDS = frozenset({"CPU", "BLAS", "OPENBLAS", "ACCELERATE", "ZENDNN", "NONE"})
# From about here llama-bench leaves flash-attention to llama.cpp, which turns it on for CPUs
# (ggml-org/llama.cpp pull request 23714, May 2026); before, it was off unless asked for.
AUTO_FLASH_BUILD = 9400
# Each its own boolean in old JSON and CSV.
_OLD_GPU_FLAGS = ("cuda", "opencl", "vulkan", "kompute", "metal", "sycl", "gpu_blas")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchRow:
    """One test of llama-bench: a model at a setting, and how fast it was.

    ``tokens_per_s`` is the mean over the repetitions, as printed. ``model_size_bytes`` and
    ``model_parameters`` of a markdown table are rounded to three digits.
    """

    row: int  # from 1, in the order of the file
    tokens_per_s: float
    stddev_tokens_per_s: float | None = None
    samples_tokens_per_s: tuple[float, ...] = ()
    n_prompt: int
    n_gen: int
    n_depth: int = 0
    model_type: str | None = None  # "llama 8B Q4_K - Medium"
    model_filename: str | None = None
    model_size_bytes: int | None = None
    model_parameters: int | None = None
    n_threads: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    flash_attn: bool | None = None  # as told; "auto" is on: what llama.cpp chooses on CPUs
    repack: bool | None = None
    mmap: bool | None = None
    n_gpu_layers: int | None = None
    devices: str | None = None
    backends: tuple[str, ...] = ()
    cpu_info: str | None = None
    build_commit: str | None = None
    build_number: int | None = None

    @property
    def is_decode(self) -> bool:
        """Whether tokens were generated and nothing else was timed (``tg``)."""
        return self.n_gen > 0 and self.n_prompt == 0

    @property
    def mean_depth_tokens(self) -> int:
        """Tokens in the cache on average over the run."""
        return self.n_depth + self.n_gen // 2

    @property
    def uses_flash_attn(self) -> bool:
        """Whether flash-attention was on: what the row says, else its build's default.

        A table has the column only where it was set. Builds from ``AUTO_FLASH_BUILD`` on leave
        it to llama.cpp, so it was on; in older ones, and where the build is not told, it was
        off, but for a quantised V, which llama.cpp takes with it only.
        """
        if self.flash_attn is not None:
            return self.flash_attn
        if needs_flash_attn(self.type_v or "f16"):
            return True
        return self.build_number is not None and self.build_number >= AUTO_FLASH_BUILD

    @property
    def gpu_backends(self) -> tuple[str, ...]:
        """The backends that may have run it elsewhere than on the CPU.

        Empty where no layer was offloaded: the build's backends are listed all the same.
        """
        if self.n_gpu_layers == 0 or self.devices == "none":
            return ()
        return tuple(name for name in self.backends if name.upper() not in CPU_BACKENDS)

    @property
    def test(self) -> str:
        """Name the test as llama-bench does: ``tg128 @ d512``."""
        parts = [f"pp{self.n_prompt}"] if self.n_prompt else []
        parts += [f"tg{self.n_gen}"] if self.n_gen else []
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchSource:
    """Where rows are from: a CPU and a build of llama.cpp, as far as they are told."""

    cpu_info: str | None
    build_commit: str | None
    build_number: int | None

    def __str__(self) -> str:
        cpu = self.cpu_info or "CPU not told"
        return f"{cpu}, build {self.build_commit or 'not told'}"


def read_bench_rows(source: str | Path) -> tuple[BenchRow, ...]:
    """Read what llama-bench printed: JSON, JSON lines, SQL, CSV or markdown tables.

    Other text around the rows (logs, an issue's prose) is passed over.

    Parameters
    ----------
    source : the text itself, or the path of a file that holds it.

    Raises
    ------
    InputError : the file cannot be read, is too large, holds no row, or a row of it has an
        impossible value.
    """
    if isinstance(source, Path):
        return _parse(read_printed_file(source, "the llama-bench file"), str(source))
    return _parse(source, "the text")


def decode_rows_on_cpu(rows: Iterable[BenchRow]) -> tuple[BenchRow, ...]:
    """Return the rows that timed decoding, if the CPU did all of it.

    Raises
    ------
    InputError : there is none, or a GPU took part in one.
    """
    decode = tuple(row for row in rows if row.is_decode)
    if not decode:
        raise InputError("no row times decoding (tg): run llama-bench with -n 128 -o json")
    for row in decode:
        if row.gpu_backends:
            raise InputError(
                f"row {row.row} ran on a GPU or may have ({', '.join(row.gpu_backends)}): "
                "run llama-bench with -ngl 0 -o json, or leave such rows out"
            )
    return decode


def group_by_source(rows: Iterable[BenchRow]) -> dict[BenchSource, tuple[BenchRow, ...]]:
    """Tell apart the rows of several machines or builds, in the order of the file."""
    found: dict[BenchSource, tuple[BenchRow, ...]] = {}
    for row in rows:
        source = BenchSource(
            cpu_info=row.cpu_info, build_commit=row.build_commit, build_number=row.build_number
        )
        found[source] = (*found.get(source, ()), row)
    return found


def read_printed_file(path: Path, what: str) -> str:
    """Return the text of a file that a program printed; ``what`` names it in errors.

    Raises
    ------
    InputError : it is no file, cannot be read, or is too large.
    """
    try:
        if not path.is_file():
            problem = "no such file" if not path.exists() else "not a file"
            raise InputError(f"{what} cannot be read ({path}: {problem}): give a text file")
        with path.open("rb") as file:
            data = file.read(bounds.PRINTED_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{what} cannot be read ({path}: {error.strerror}): check its name and rights"
        ) from error
    if len(data) > bounds.PRINTED_BYTES:
        raise InputError(
            f"{what} is too large ({path}, over {bounds.PRINTED_BYTES // 2**20} MiB): "
            "cut out the runs that you mean"
        )
    # PowerShell writes what it redirects as UTF-16.
    is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode("utf-16" if is_utf16 else "utf-8-sig", "replace")


def _parse(text: str, source: str) -> tuple[BenchRow, ...]:
    remedy = "give llama-bench's output as it printed it"
    rows: list[BenchRow] = []
    try:
        for entry in read_entries(text):
            if len(rows) == bounds.ROWS:
                raise ValueError(f"more than {bounds.ROWS} rows")
            rows.append(_row(entry, len(rows) + 1))
    except UnreadableEntry as error:
        raise InputError(f"{source} cannot be read ({error}): {remedy}") from error
    except ValueError as error:
        raise InputError(
            f"row {len(rows) + 1} of {source} cannot be read ({error}): {remedy}"
        ) from error
    if not rows:
        raise InputError(
            f"no llama-bench rows in {source}: give what llama-bench -o json, jsonl, csv or md "
            "printed"
        )
    return tuple(rows)


def _row(entry: Mapping[str, Any], number: int) -> BenchRow:
    """Check one test and name its fields; ValueError says what is impossible in it."""
    fields = {name: value for name, value in entry.items() if value is not None}

    def field(name: str, read: Callable[[str, Any], Any], *others: str) -> Any:
        for key in (name, *others):
            if key in fields:
                return read(key, fields[key])
        return None

    samples_ns = _numbers(fields, "samples_ns")
    n_prompt, n_gen = field("n_prompt", _count) or 0, field("n_gen", _count) or 0
    if not n_prompt + n_gen:
        raise ValueError("neither n_prompt nor n_gen")
    tokens = n_prompt + n_gen
    samples = _numbers(fields, "samples_ts") or tuple(1e9 * tokens / ns for ns in samples_ns)
    rate = field("avg_ts", _rate) or (sum(samples) / len(samples) if samples else None)
    if rate is None:
        raise ValueError("no avg_ts")
    row = BenchRow(
        row=number,
        tokens_per_s=rate,
        stddev_tokens_per_s=field("stddev_ts", _spread),
        samples_tokens_per_s=samples,
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=field("n_depth", _count) or 0,
        model_type=field("model_type", _text),
        model_filename=field("model_filename", _text),
        model_size_bytes=field("model_size", _count) or None,
        model_parameters=field("model_n_params", _count) or None,
        n_threads=field("n_threads", _count) or None,
        n_batch=field("n_batch", _count),
        n_ubatch=field("n_ubatch", _count),
        type_k=field("type_k", _text),
        type_v=field("type_v", _text),
        flash_attn=field("flash_attn", _flag),
        repack=field("repack", _flag),
        mmap=field("use_mmap", _flag),
        n_gpu_layers=field("n_gpu_layers", _integer),
        devices=field("devices", _text),
        backends=_backends(fields),
        cpu_info=field("cpu_info", _text),
        build_commit=field("build_commit", _text),
        build_number=field("build_number", _count),
    )
    # Builds before 2024 said one type for K and V.
    old_type = field("f16_kv", _flag)
    if row.type_k is None and old_type is not None:
        name = "f16" if old_type else "f32"
        row = replace(row, type_k=name, type_v=name)
    if row.mmap is None and "load_mode" in fields:
        row = replace(row, mmap=fields["load_mode"] in ("auto", "mmap"))
    return row


def _backends(fields: Mapping[str, Any]) -> tuple[str, ...]:
    if "backends" in fields:
        names = _text("backends", fields["backends"]) or ""
        return tuple(name.strip() for name in names.split(",") if name.strip())
    flags = [name for name in _OLD_GPU_FLAGS if name in fields]
    return tuple(name.upper() for name in flags if _flag(name, fields[name]))


def _text(name: str, value: Any) -> str | None:
    if isinstance(value, list | dict):
        raise ValueError(f"{name} is no text")
    # One line and short: it is printed.
    return " ".join(str(value).split())[:200] or None


def _number(name: str, value: Any) -> float:
    try:
        # Programs that set a locale write its decimal sign.
        number = float(value.replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < MAX_NUMBER:
        raise ValueError(f"{name} {str(value)[:40]!r}")
    return number


def _integer(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != int(number):
        raise ValueError(f"{name} {str(value)[:40]!r}")
    return int(number)


def _count(name: str, value: Any) -> int:
    number = _integer(name, value)
    most = MAX_THREADS if name == "n_threads" else MAX_TOKENS if name[:2] == "n_" else MAX_NUMBER
    if not 0 <= number <= most:
        raise ValueError(f"{name} {number}")
    return number


def _rate(name: str, value: Any) -> float:
    number = _number(name, value)
    if number <= 0:
        raise ValueError(f"{name} {number}")
    return number


def _spread(name: str, value: Any) -> float:
    return abs(_number(name, value))


def _numbers(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    values = fields.get(name, ())
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{name} is no list")
    return tuple(_rate(name, value) for value in values)


def _flag(name: str, value: Any) -> bool | None:
    text = str(value).strip().lower()
    if text in ("1", "true", "on", "yes", "auto", "-1"):
        return True
    if text in ("0", "false", "off", "no"):
        return False
    raise ValueError(f"{name} {text[:40]!r}")
