"""Other people's runs: predictions beside rows of a llama-bench file, and profiles from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from cpubound.cost.predict import predict_decode
from cpubound.engine.bench_rows import (
    BenchRow,
    BenchSource,
    decode_rows_on_cpu,
    group_by_source,
    read_bench_rows,
)
from cpubound.engine.values import EngineIdentity
from cpubound.errors import InputError
from cpubound.measuring.from_rates import profile_from_rates, rate_row
from cpubound.model.identify import ModelClues, fits_tensor_bytes, identify_model
from cpubound.model.traffic import compute_traffic
from cpubound.model.values import ModelSpec, ModelTraffic
from cpubound.profile.values import MachineProfile
from cpubound.setting import Setting
from cpubound.validation.cells import Cell, Validation, summarize

_NAMED_ROWS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRow:
    """A row of llama-bench with the model that it is about."""

    row: BenchRow
    spec: ModelSpec

    @property
    def traffic(self) -> ModelTraffic:
        """What a step moved on average over the run."""
        setting = Setting(
            depth_tokens=self.row.mean_depth_tokens,
            # As llama-bench allocates it.
            allocated_context_tokens=self.row.n_depth + self.row.n_gen,
            kv_type_k=(self.row.type_k or "f16").lower(),
            kv_type_v=(self.row.type_v or "f16").lower(),
            flash_attn=self.row.uses_flash_attn,
        )
        return compute_traffic(self.spec, setting)

    @property
    def threads(self) -> int:
        """The threads; ``match_models`` leaves rows without them out."""
        return self.row.n_threads or 1


def match_models(
    rows: Iterable[BenchRow], models: Sequence[ModelSpec] = ()
) -> tuple[tuple[ModelRow, ...], tuple[str, ...]]:
    """Find the model of each decode row: one of ``models``, or one of the catalogue.

    Returns the rows with their models, and warnings about rows that were left out.

    Raises
    ------
    InputError : no row is left, or a GPU took part in one.
    """
    found, unknown, threadless = [], [], []
    for row in decode_rows_on_cpu(rows):
        spec = _model_of(row, models)
        if spec is None:
            unknown.append(row)
        elif row.n_threads is None:
            threadless.append(row)
        else:
            found.append(ModelRow(row=row, spec=spec))
    warnings = []
    if unknown:
        of_given = "none of the models given" if models else "no model of the catalogue for certain"
        warnings.append(f"{_name_rows(unknown)}: {of_given}")
    if threadless:
        warnings.append(f"{_name_rows(threadless)}: the thread count is not told")
    if not found:
        raise InputError(f"{'; '.join(warnings)}: give the model that was run")
    return tuple(found), tuple(f"left out: {warning}" for warning in warnings)


def calibrate_from(
    path: str | Path, *, models: Sequence[ModelSpec] = (), cpu: str | None = None
) -> MachineProfile:
    """Build the profile of a machine that cpubound never ran on from a llama-bench file.

    Parameters
    ----------
    path : what llama-bench printed there: JSON, JSON lines, CSV or markdown.
    models : what was run, where file names and sizes do not tell.
    cpu : the CPU's name where the file does not tell, as in a markdown table.

    Raises
    ------
    InputError : the file cannot be read, holds GPU rows, or rows of several machines.
    """
    rows, warnings = match_models(read_bench_rows(Path(path)), models)
    sources = list(group_by_source(matched.row for matched in rows))
    machines = {source.cpu_info for source in sources}
    if len(machines) > 1:
        names = ", ".join(sorted(str(name or "not told") for name in machines))
        raise InputError(f"{path} holds rows of {len(machines)} CPUs ({names}): give one's only")
    if len(sources) > 1:
        warnings += (f"rows of {len(sources)} builds were taken as one",)
    first = rows[0].row
    profile = profile_from_rates(
        [rate_row(row.traffic, row.threads, row.row.tokens_per_s) for row in rows],
        cpu_model=first.cpu_info or cpu,
        engine=EngineIdentity(
            name="llama.cpp",
            version=str(first.build_number or "unknown"),
            build=first.build_commit or "unknown",
        ),
        source=str(path),
        relative_samples=[sample for row in rows for sample in _relative_samples(row.row)],
    )
    return structs.replace(profile, warnings=(*profile.warnings, *warnings))


def validate_from(
    path: str | Path, profile: MachineProfile, *, models: Sequence[ModelSpec] = ()
) -> Validation:
    """Put a profile's predictions beside the decode rows of a llama-bench file.

    Parameters
    ----------
    path : what llama-bench printed: JSON, JSON lines, CSV or markdown.
    models : what was run, where file names and sizes do not tell.

    Raises
    ------
    InputError : the file cannot be read, or no row can be compared.
    """
    rows, warnings = match_models(read_bench_rows(Path(path)), models)
    cells = tuple(_cell(profile, row) for row in rows)
    sources = list(group_by_source(matched.row for matched in rows))
    differences = [line for source in sources for line in _differences(profile, source)]
    return Validation(
        cells=cells,
        summary=summarize(cells),
        engine="; ".join(str(source) for source in sources),
        warnings=(*warnings, *dict.fromkeys(differences)),
    )


def _relative_samples(row: BenchRow) -> tuple[float, ...]:
    """Return a row's repetitions over their mean; of a table what its ± means."""
    if row.samples_tokens_per_s:
        return tuple(sample / row.tokens_per_s for sample in row.samples_tokens_per_s)
    spread = (row.stddev_tokens_per_s or 0.0) / row.tokens_per_s
    return (max(1 - spread, 0.01), 1 + spread)


def _model_of(row: BenchRow, models: Sequence[ModelSpec]) -> ModelSpec | None:
    size = row.model_size_bytes
    if models:
        if size is None:
            return models[0] if len(models) == 1 else None
        fitting = [spec for spec in models if fits_tensor_bytes(spec, size)]
        return fitting[0] if len(fitting) == 1 else None
    return identify_model(
        ModelClues(
            label=row.model_type,
            filename=row.model_filename,
            parameters=row.model_parameters,
            tensor_bytes=size,
        )
    )


def _cell(profile: MachineProfile, matched: ModelRow) -> Cell:
    row = matched.row
    prediction = predict_decode(profile, matched.traffic, matched.threads)
    setting = structs.replace(prediction.setting, depth_tokens=row.n_depth)
    naive = prediction.ceiling_tokens_per_s
    samples = row.samples_tokens_per_s or (row.tokens_per_s,)
    return Cell(
        # As validate: predicted at the mean depth of the run, named by the depth it began at.
        prediction=structs.replace(prediction, setting=setting),
        observed_tokens_per_s=row.tokens_per_s,
        samples_s=tuple(1 / sample for sample in samples),
        relative_error=prediction.tokens_per_s / row.tokens_per_s - 1,
        paired_error=None,
        inside=prediction.low <= row.tokens_per_s <= prediction.high,
        naive_tokens_per_s=naive,
        naive_error=naive / row.tokens_per_s - 1,
        noise_floor=None,
        reference_bytes_per_s=None,
    )


def _differences(profile: MachineProfile, source: BenchSource) -> list[str]:
    """Say where the rows' CPU and build are not those of the profile, as far as both are told."""
    found = []
    cpu = profile.machine.cpu_model
    if cpu and source.cpu_info and cpu.split() != source.cpu_info.split():
        found.append(f"the rows are of another CPU ({source.cpu_info}) than the profile's ({cpu})")
    engine = profile.engine
    told = source.build_commit
    if engine is not None and told:
        if engine.name not in ("llama.cpp", "llama-bench"):
            found.append(
                f"the rows are of llama.cpp {told}, the profile was measured through "
                f"{engine.name} {engine.version}"
            )
        elif not (engine.build.startswith(told) or told.startswith(engine.build)):
            found.append(
                f"the rows are of another build ({told}) than the profile's ({engine.build})"
            )
    if engine is None:
        found.append("the profile has no engine stage: predictions are from our own kernels")
    return found


def _name_rows(rows: Sequence[BenchRow]) -> str:
    """Name the first rows by number, label and size."""
    names = [
        f"row {row.row} ({row.model_type or row.model_filename or 'model not named'})"
        for row in rows[:_NAMED_ROWS]
    ]
    more = len(rows) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
