"""Hold cpubound's matrix-vector kernels against llama.cpp's own, type by type, interleaved.

llama.cpp decodes a synthetic model of one quant type whose matrices are large enough that
everything else in a token weighs little (which counts against llama.cpp, by a percent or
so); its rate is weight bytes over the median time of a token. A kernel of ours takes the
same kind of pages: ``file`` where llama.cpp maps the weights, ``anon_4k`` where it copies
them into its repacked layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cpubound.engine.inprocess import LlamaCppRunner, open_runner
from cpubound.engine.synth import write_model
from cpubound.engine.values import RunSettings
from cpubound.kernels.run import open_kernel
from cpubound.model.layout import build_model
from cpubound.model.quant import quant_type
from cpubound.model.values import ModelSpec
from cpubound.setting import Setting
from cpubound.stats import median
from cpubound.units import MIB

TYPES = ("F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K")
# What llama.cpp keeps in a repacked layout on x86 with AVX2 (ggml-cpu/repack.cpp, commit
# 0c1e57098bba): there its weights lie in anonymous memory, the others in the mapped file.
REPACKED = ("Q4_0", "Q4_K")
# Width and FFN width: a layer of the wide types must not outgrow a run of some seconds.
SHAPES = {"F32": (2048, 5632), "F16": (2048, 5632)}
OTHER_SHAPE = (4096, 8192)
HEAD_DIM = 128
MODEL_BYTES = 160 * MIB
MIN_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class GemvCase:
    """One quant type: the model file for llama.cpp and what a token reads of it."""

    type: str
    path: Path
    columns: int
    weights_bytes: int

    @property
    def kernel(self) -> str:
        return f"gemv_{self.type.lower()}"

    @property
    def page_kind(self) -> str:
        return "anon_4k" if self.type in REPACKED else "file"


def one_type_model(type_name: str, target_bytes: int = MODEL_BYTES) -> ModelSpec:
    """Return a llama model whose matrices all have one type, of about ``target_bytes``."""
    quant = quant_type(type_name)
    width, ffn = SHAPES.get(type_name, OTHER_SHAPE)
    layer_elements = 4 * width * width + 3 * width * ffn
    layer_bytes = layer_elements * quant.block_bytes / quant.block_size
    spec = build_model(
        "llama",
        {
            "context_length": 512,
            "embedding_length": width,
            "block_count": max(1, round(target_bytes / layer_bytes)),
            "feed_forward_length": ffn,
            "attention.head_count": width // HEAD_DIM,
            "attention.head_count_kv": width // HEAD_DIM,
            "attention.key_length": HEAD_DIM,
            "attention.value_length": HEAD_DIM,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": HEAD_DIM,
            "rope.freq_base": 10000.0,
        },
        "F16",
        vocabulary_size=256,
        tied_output=False,
        name=f"gemv-{type_name}",
    )
    tensors = tuple(
        replace(tensor, type=quant) if tensor.type.name == "F16" else tensor
        for tensor in spec.tensors
    )
    return replace(spec, tensors=tensors)


@contextmanager
def gemv_cases(
    types: Sequence[str], folder: Path
) -> Iterator[tuple[LlamaCppRunner, tuple[GemvCase, ...]]]:
    """Write the models and open llama.cpp; files go away with ``folder``."""
    with open_runner() as runner:
        cases = []
        for name in types:
            spec = one_type_model(name)
            path = folder / f"{name}.gguf"
            write_model(spec, path, quantize=runner.quantize)
            matrices = sum(
                tensor.n_bytes for tensor in spec.tensors if "token_embd" not in tensor.name
            )
            columns = SHAPES.get(name, OTHER_SHAPE)[0]
            cases.append(GemvCase(type=name, path=path, columns=columns, weights_bytes=matrices))
        yield runner, tuple(cases)


def gemv_instruments(
    runner: LlamaCppRunner, case: GemvCase, threads: int, stretch_s: float
) -> dict[str, Callable[[], float]]:
    """Return what gives the rate of a type in bytes per second right now, by name.

    "read" is the bandwidth of the same pages: what a kernel can reach at best.
    """
    settings = RunSettings(
        model_path=str(case.path),
        setting=Setting(threads=threads, flash_attn=False),
        tokens=MIN_TOKENS,
    )
    first = runner.run(settings)
    tokens = max(MIN_TOKENS, round(stretch_s / median(first.samples_s)))
    settings = RunSettings(
        model_path=str(case.path), setting=Setting(threads=threads, flash_attn=False), tokens=tokens
    )

    def run_llama() -> float:
        return case.weights_bytes / median(runner.run(settings).samples_s)

    def run_kernel(kernel: str) -> float:
        with open_kernel(
            kernel,
            threads=threads,
            working_set_bytes=case.weights_bytes,
            page_kind=case.page_kind,
            columns=case.columns,
            min_sample_s=stretch_s / 4,
        ) as bench:
            return bench.bytes_per_pass / median([bench.sample() for _ in range(4)])

    return {
        "cpubound": partial(run_kernel, case.kernel),
        "llama.cpp": run_llama,
        "read": partial(run_kernel, "read"),
    }
