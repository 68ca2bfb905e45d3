"""``cpubound predict --local`` and ``--fits``: many models in one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cpubound.cli.terminal import say
from cpubound.foreign import visible

if TYPE_CHECKING:
    from cpubound.cost.values import Prediction
    from cpubound.model.values import ModelSpec
    from cpubound.profile.values import MachineProfile

# What people choose among; every type of every model would be a table of a thousand rows.
FITS_FILE_TYPES = ("Q8_0", "Q6_K", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M")

NOTHING = (
    "None. --local looks in the stores of Ollama, Hugging Face, LM Studio and llama.cpp; "
    "--fits in the catalogue."
)


def local_specs() -> Iterator[ModelSpec]:
    """Read the header of every model file that the usual programs keep here."""
    from cpubound.errors import CpuboundError
    from cpubound.model.gguf import read_gguf
    from cpubound.model.stores import local_models

    for model in local_models():
        try:
            yield read_gguf(model.path)
        except CpuboundError as error:
            say(f"cpubound: passed over: {visible(error)}", err=True)


def catalogue_specs(memory_bytes: int | None = None) -> Iterator[ModelSpec]:
    """Describe the models of the catalogue at the usual file types.

    What cannot fit into ``memory_bytes``, at the size of the type that most tensors get, is
    left out before its tensors are listed.
    """
    from cpubound.errors import UsageError
    from cpubound.model.catalog import catalog_entry, catalog_names
    from cpubound.model.ftype import file_type as find_file_type
    from cpubound.model.quant import quant_type

    for name in catalog_names():
        entry = catalog_entry(name)
        for file_type in FITS_FILE_TYPES:
            if file_type not in entry.file_types:
                continue
            bits = quant_type(find_file_type(file_type).default_type).bits_per_weight
            if memory_bytes is not None and entry.parameters * bits / 8 > memory_bytes:
                continue
            try:
                yield entry.at(file_type)
            except UsageError:
                continue  # rows of this model do not divide into blocks of that type


def print_survey(
    profile: MachineProfile,
    predictions: tuple[Prediction, ...],
    *,
    title: str,
    style: str,
    json_path: str | None,
    force: bool,
) -> None:
    """Print the table of many models."""
    from cpubound.cli.output import print_result
    from cpubound.report.predictions import basis_note, prediction_document, prediction_rows
    from cpubound.report.survey import survey_table

    machine = profile.machine.cpu_model or profile.machine.architecture
    print_result(
        prediction_document(title, profile, predictions),
        survey_table(predictions),
        style=style,
        json_path=json_path,
        force=force,
        after=basis_note(predictions) or NOTHING,
        before=f"{title} on {machine}, fastest first; tok/s [90 % interval]",
        csv_table=prediction_rows(predictions),
    )
