"""The engine and its files, opened for a verb and put away after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cpubound.api.common import Progress
from cpubound.model.values import ModelSpec
from cpubound.profile.values import MachineProfile

if TYPE_CHECKING:
    from cpubound.engine.inprocess import LlamaCppRunner
    from cpubound.engine.llama_bench import LlamaBenchRunner
    from cpubound.engine.synth import Quantize


def open_engine(engine_path: str | None) -> LlamaCppRunner | LlamaBenchRunner:
    """Return the engine asked for; without llama-cpp-python, a llama-bench on PATH."""
    from cpubound.engine import find_runner, open_runner
    from cpubound.engine.llama_bench import LlamaBenchRunner, find_llama_bench

    if engine_path is not None:
        return LlamaBenchRunner(engine_path)
    on_path = find_llama_bench() if find_runner() is None else None
    return open_runner() if on_path is None else LlamaBenchRunner(on_path)


def quantizer(runner: LlamaCppRunner | LlamaBenchRunner | None) -> Quantize | None:
    """Return what quantises probes: the runner's own child, or ours where ggml is not there."""
    from cpubound.engine import find_runner
    from cpubound.engine.llama_bench import LlamaBenchRunner
    from cpubound.engine.plain_blocks import random_blocks

    if runner is None:
        return None
    if isinstance(runner, LlamaBenchRunner):
        return random_blocks if find_runner() is None else None
    return runner.quantize


@contextmanager
def engine_files(
    specs: Sequence[ModelSpec], progress: Progress, engine_path: str | None = None
) -> Iterator[tuple[LlamaCppRunner | LlamaBenchRunner, list[str]]]:
    """Open llama.cpp with a file for each model; what had to be written goes at the end."""
    from cpubound.temporary import model_folder

    with ExitStack() as stack:
        runner = open_engine(engine_path)
        stack.callback(runner.close)
        folder = stack.enter_context(model_folder())
        # Numbered: file types of one model share its name.
        yield (
            runner,
            [
                model_file(spec, folder / f"{number}-{spec.name}.gguf", progress, quantizer(runner))
                for number, spec in enumerate(specs)
            ],
        )


@contextmanager
def engine_with(spec: ModelSpec, progress: Progress) -> Iterator[tuple[LlamaCppRunner, str]]:
    """Open llama-cpp-python with the file of one model; what was written goes at the end."""
    from cpubound.engine import open_runner
    from cpubound.temporary import model_folder

    with open_runner() as runner, model_folder() as folder:
        yield runner, model_file(spec, folder / f"{spec.name}.gguf", progress)


def model_file(
    spec: ModelSpec, path: Path, progress: Progress, quantize: Quantize | None = None
) -> str:
    """Return a model's own file, or write its shape to ``path``."""
    if spec.shards:
        return spec.shards[0]
    from cpubound.engine.synth import write_model

    write_model(
        spec,
        path,
        quantize=quantize,
        progress=lambda done, total: progress(f"writing {spec.name}", done / total),
    )
    return str(path)


@contextmanager
def open_reference(
    profile: MachineProfile, counts: Sequence[int]
) -> Iterator[Callable[[int], float]]:
    """Keep the reference kernel ready at the thread counts, as calibration placed it."""
    from cpubound.kernels.run import open_kernel
    from cpubound.measuring.bandwidth import BandwidthCell, open_references

    measured = profile.measurements("read", "anon_4k")
    largest = max(m.working_set_bytes for m in profile.bandwidth)

    def cell(threads: int, cpus: tuple[int, ...] | None) -> BandwidthCell:
        return BandwidthCell(
            kernel="read",
            threads=threads,
            page_kind="anon_4k",
            cpus=cpus,
            working_set_bytes=largest,
        )

    cells = [cell(t, measured[t].cpus) for t in sorted(set(counts) & set(measured))]
    with ExitStack() as stack:
        yield open_references(stack, cells or [cell(1, None)], open_bench=open_kernel)
