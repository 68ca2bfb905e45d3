"""``cpubound inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cpubound import bounds
from cpubound.cli.options import (
    Integer,
    attention_options,
    n_ctx_option,
    one_depth_option,
    output_options,
)

if TYPE_CHECKING:
    from cpubound.model.values import ModelSpec, ModelTraffic


@click.command(name="inspect")
@click.argument("model")
@one_depth_option
@n_ctx_option
@click.option(
    "--batch",
    "-b",
    type=Integer(1, bounds.BATCH),
    default=1,
    show_default=True,
    help="Sequences decoded together.",
)
@attention_options
@click.option("--verify", is_flag=True, help="Run one step in llama.cpp and count its bytes too.")
@output_options
def command(
    model: str,
    depth: int,
    n_ctx: int | None,
    batch: int,
    kv_type: str,
    flash_attn: bool,
    verify: bool,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Show the bytes that MODEL reads and writes for each token.

    MODEL is a .gguf file (any shard of a split one), a catalogue name with an optional file type
    (llama-3.1-8b:Q4_K_M), a folder, a Hugging Face config.json, or ollama:NAME.
    """
    from cpubound import api
    from cpubound.cli.output import print_result
    from cpubound.model.resolve import resolve_model
    from cpubound.report import traffic as report

    spec = resolve_model(model)
    traffic = api.inspect_model(
        spec,
        depth=depth,
        n_ctx=n_ctx,
        batch=batch,
        kv_type=kv_type,
        flash_attn=flash_attn,
    )
    if verify:
        print_verification(spec, traffic, style=style, json_path=json_path, force=force)
        return
    print_result(
        report.traffic_document(traffic),
        report.traffic_table(traffic),
        style=style,
        json_path=json_path,
        force=force,
        before=report.traffic_heading(traffic),
        after=report.traffic_notes(traffic),
        csv_table=report.traffic_rows(traffic),
    )


def print_verification(
    spec: ModelSpec, traffic: ModelTraffic, *, style: str, json_path: str | None, force: bool
) -> None:
    """Print the rules' bytes beside those counted in llama.cpp's graph.

    Raises ``CheckFailed`` if they differ, ``UsageError`` for a model without a file.
    """
    from msgspec import structs

    from cpubound.cli.output import print_result
    from cpubound.engine import open_runner
    from cpubound.engine.values import RunSettings
    from cpubound.errors import CheckFailed, UsageError
    from cpubound.report import verification as report
    from cpubound.report.traffic import traffic_heading

    if not spec.shards:
        raise UsageError(f"--verify runs a file, and {spec.name} is only a shape: synth writes one")
    if traffic.setting.batch > 1:
        raise UsageError(
            f"--verify counts one sequence ({traffic.setting.batch} asked): leave --batch out"
        )
    # Before its first token a recurrent state is cleared, once: look at the second.
    depth = (
        max(traffic.setting.depth_tokens, 1)
        if traffic.state_read_bytes
        else traffic.setting.depth_tokens
    )
    settings = RunSettings(
        model_path=spec.shards[0],
        setting=structs.replace(
            traffic.setting, depth_tokens=depth, allocated_context_tokens=traffic.setting.n_ctx
        ),
        tokens=1,
    )
    with open_runner() as runner:
        counted = runner.count_graph(settings)
    comparison = report.compare_parts(traffic, counted)
    print_result(
        report.verification_document(traffic, comparison),
        report.verification_table(comparison),
        style=style,
        json_path=json_path,
        force=force,
        before=traffic_heading(traffic),
    )
    outside = [part.name for part in comparison if not part.agrees]
    if outside:
        raise CheckFailed(f"rule and graph differ ({', '.join(outside)}): please report the model")
