"""``cpubound synth``."""

from __future__ import annotations

import click

from cpubound.cli.options import MAX_SEED, Integer
from cpubound.cli.terminal import say
from cpubound.foreign import visible


@click.command(name="synth")
@click.argument("model", metavar="MODEL[:FILETYPE]")
@click.option(
    "--output", "-o", "path", metavar="FILE", required=True, help="The GGUF file to write."
)
@click.option(
    "--seed", type=Integer(0, MAX_SEED), default=0, show_default=True, help="Of the random weights."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(model: str, path: str, seed: int, force: bool) -> None:
    """Write a GGUF of a model's shape with random weights.

    MODEL is a name of the catalogue or a Hugging Face config.json. llama.cpp loads and decodes
    the file as fast as the real model at that file type (Q4_K_M where none is given); what it
    says has no meaning. `cpubound synth llama-3.2-1b:Q8_0 -o x.gguf`
    """
    from pathlib import Path

    from cpubound.cli.output import check_new_file
    from cpubound.cli.progress import progress_bar
    from cpubound.engine.synth import write_model
    from cpubound.errors import UsageError
    from cpubound.model.resolve import resolve_model
    from cpubound.units import format_decimal_bytes

    target = Path(path)
    check_new_file(target, force=force)
    spec = resolve_model(model)
    if spec.shards:
        raise UsageError(f"this model has a file ({model}): give a name or a config.json")
    with progress_bar() as show:
        write_model(
            spec,
            target,
            seed=seed,
            progress=lambda written, total: show(f"writing {spec.name}", written / total),
        )
    size = format_decimal_bytes(target.stat().st_size)
    say(f"{visible(target)}: {visible(spec.name)}, {size}")
