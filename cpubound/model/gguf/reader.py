"""Read a GGUF model, one file or a split one, into a ``ModelSpec``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path, PurePath

from cpubound import bounds
from cpubound.errors import ModelFileError
from cpubound.model.gguf.header import (
    MAGIC,
    GgufHeader,
    LongArray,
    parse_header,
    quoted,
)
from cpubound.model.gguf.source import FileSource, NoSuchFile, Source
from cpubound.model.values import HyperParameter, ModelSpec, Tensor

# llama_split_path of src/llama.cpp, commit 0c1e57098bba: counted from 1.
_SHARD_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

Opener = Callable[[str], AbstractContextManager[Source]]


def read_gguf(path: str | os.PathLike[str]) -> ModelSpec:
    """Read the header of a GGUF model; any shard of a split one names all of it.

    Nothing of the weights is read. Raises ``ModelFileError``, which says what is wrong
    and where, for a file that is missing, broken, cut short, of another kind, or not a
    model that decodes (a projector, an adapter, an importance matrix, a vocabulary).
    """
    return read_gguf_from(os.fspath(path), FileSource)


def read_gguf_from(name: str, open_source: Opener) -> ModelSpec:
    """Read a GGUF model as ``read_gguf`` does, through any kind of ``Source``.

    ``open_source`` takes the name of a file beside ``name`` and gives a ``Source`` in a
    ``with`` block; a remote file needs only that.
    """
    headers = [_read_one(name, open_source)]
    count = _split_count(headers[0])
    if count > 1:
        headers = _read_shards(name, count, headers[0], open_source)
    _refuse_what_does_not_decode(headers[0])
    return _model_spec(headers)


def shard_names(name: str, count: int) -> tuple[str, ...]:
    """Return the names of all ``count`` shards, given one of them.

    Raises ``ModelFileError`` if ``name`` is not named as shards are.
    """
    match = _SHARD_NAME.fullmatch(name)
    if match is None or int(match["count"]) != count:
        raise ModelFileError(
            f"this is one of {count} shards, but not named so ({name}): "
            f"name it …-0000N-of-{count:05d}.gguf beside the others",
            code="split",
            evidence={"shards": count},
        )
    return tuple(f"{match['prefix']}-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1))


def _read_one(name: str, open_source: Opener) -> GgufHeader:
    with open_source(name) as source:
        header = parse_header(source)
        extra = _check_data(header, source)
    return replace(header, warnings=header.warnings + extra)


def _split_count(header: GgufHeader) -> int:
    count = header.metadata.get("split.count", 1)
    if not isinstance(count, int) or count < 0 or count > bounds.MODEL_SHARDS:
        raise ModelFileError(
            f"a model cannot have {count!r} shards ({header.source}): download it again"
        )
    return count


def _read_shards(name: str, count: int, given: GgufHeader, open_source: Opener) -> list[GgufHeader]:
    headers = []
    for number, shard in enumerate(shard_names(name, count)):
        header = given if shard == name else _read_shard(shard, number, count, open_source)
        if header.metadata.get("split.no") != number or _split_count(header) != count:
            raise ModelFileError(
                f"this is not shard {number + 1} of {count}, as its name says ({shard}): "
                "download it again",
                code="split",
                evidence={"shards": count, "shard": number + 1},
            )
        # Only the first shard's metadata describe the model.
        headers.append(replace(header, metadata={}) if number else header)
        _refuse_too_much(headers, shard)
    claimed = headers[0].metadata.get("split.tensors.count")
    found = sum(len(header.tensors) for header in headers)
    if isinstance(claimed, int) and claimed != found:
        raise ModelFileError(
            f"the {count} shards hold {found} tensors where {claimed} are expected ({name}): "
            "download them again, all from one place",
            code="split",
            evidence={"shards": count, "tensors": found, "expected_tensors": claimed},
        )
    return headers


def _refuse_too_much(headers: Sequence[GgufHeader], name: str) -> None:
    """Raise ``ModelFileError`` where shards are each within bounds and all together are not."""
    tensors = sum(len(header.tensors) for header in headers)
    n_bytes = sum(header.data_offset for header in headers)
    if tensors > bounds.MODEL_ENTRIES or n_bytes > bounds.MODEL_HEADER_BYTES:
        raise ModelFileError(
            f"the first {len(headers)} shards claim {tensors} tensors in {n_bytes} bytes of "
            f"headers ({name}): no model has so many; download it again"
        )


def _read_shard(shard: str, number: int, count: int, open_source: Opener) -> GgufHeader:
    try:
        return _read_one(shard, open_source)
    except NoSuchFile:
        raise NoSuchFile(
            f"shard {number + 1} of {count} is missing ({shard}): download it to that place",
            code="split",
            evidence={"shards": count, "shard": number + 1},
        ) from None


def _check_data(header: GgufHeader, source: Source) -> tuple[str, ...]:
    """Compare where the tensors lie with each other and with the size of the file."""
    end = 0
    previous = ""
    for tensor in sorted(header.tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            raise ModelFileError(
                f"the data of tensors {quoted(previous)} and {quoted(tensor.name)} overlap "
                f"({header.source}): download it again"
            )
        end = tensor.offset + tensor.n_bytes
        previous = tensor.name
    end += header.data_offset
    if header.size is None:
        return ()
    if end > header.size:
        raise ModelFileError(
            f"the file is cut short by {end - header.size} of {end} bytes: the data of "
            f"{_beyond(header)} lie past its end ({header.source}): download it again",
            code="truncated",
            evidence={"missing_bytes": end - header.size, "expected_bytes": end},
        )
    end += -end % header.alignment
    if end < header.size:
        if source.read(end, len(MAGIC)) == MAGIC:
            raise ModelFileError(
                f"a second GGUF begins at byte {end}: shards were joined with cat "
                f"({header.source}): keep the shards apart and give the first",
                code="split",
                evidence={"second_starts_at_byte": end, "file_bytes": header.size},
            )
        if all(tensor.type.block_bytes for tensor in header.tensors):
            return (f"{header.size - end} bytes follow the last tensor",)
    return ()


def _beyond(header: GgufHeader) -> str:
    assert header.size is not None
    beyond = [
        tensor.name
        for tensor in header.tensors
        if header.data_offset + tensor.offset + tensor.n_bytes > header.size
    ]
    return quoted(beyond[0]) if len(beyond) == 1 else f"{len(beyond)} tensors"


def _refuse_what_does_not_decode(header: GgufHeader) -> None:
    metadata = header.metadata
    kind = metadata.get("general.type")
    architecture = metadata.get("general.architecture")
    where = header.source
    if kind == "mmproj" or architecture == "clip":
        raise ModelFileError(
            f"this is a vision or audio projector (mmproj), which decodes nothing ({where}): "
            "give the language model it belongs to",
            code="projector",
        )
    if kind == "adapter" or "adapter.type" in metadata:
        raise ModelFileError(
            f"this is a LoRA adapter, not a model ({where}): give the model it was made for",
            code="projector",
        )
    if architecture == "controlvector":
        raise ModelFileError(
            f"this is a control vector, not a model ({where}): give the model it was made for",
            code="projector",
        )
    if kind == "imatrix" or "imatrix.datasets" in metadata:
        raise ModelFileError(
            f"this is an importance matrix (imatrix), not a model ({where}): "
            "give the model it was computed from",
            code="projector",
        )
    if not isinstance(architecture, str) or not architecture:
        raise ModelFileError(
            f"the file names no architecture (general.architecture) ({where}): convert it again"
        )


def _model_spec(headers: Sequence[GgufHeader]) -> ModelSpec:
    first = headers[0]
    tensors = _all_tensors(headers)
    if not tensors:
        raise ModelFileError(
            f"the file holds a vocabulary but no tensors ({first.source}): give a whole model",
            code="projector",
        )
    architecture = str(first.metadata["general.architecture"])
    file_type = first.metadata.get("general.file_type")
    sizes = [header.size for header in headers]
    return ModelSpec(
        name=_model_name(first.source),
        architecture=architecture,
        hyper_parameters=_hyper_parameters(first, architecture),
        tensors=tensors,
        vocabulary_size=_vocabulary_size(first, architecture),
        file_type=file_type if isinstance(file_type, int) else None,
        file_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        shards=tuple(header.source for header in headers),
        warnings=tuple(dict.fromkeys(text for header in headers for text in header.warnings)),
    )


def _all_tensors(headers: Sequence[GgufHeader]) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    for number, header in enumerate(headers):
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise ModelFileError(
                    f"the tensor {quoted(tensor.name)} stands in two shards ({header.source}): "
                    "download them again, all from one place"
                )
            tensors[tensor.name] = replace(tensor, shard=number) if number else tensor
    return tuple(tensors.values())


def _model_name(source: str) -> str:
    match = _SHARD_NAME.fullmatch(source)
    return PurePath(match["prefix"]).name if match else Path(source).name.removesuffix(".gguf")


def _hyper_parameters(header: GgufHeader, architecture: str) -> dict[str, HyperParameter]:
    """Return the architecture's own keys without its prefix, and the general ones with it."""
    prefix = architecture + "."
    return {
        key.removeprefix(prefix): value
        for key, value in header.metadata.items()
        if key.startswith((prefix, "general.")) and isinstance(value, int | float | str | tuple)
    }


def _vocabulary_size(header: GgufHeader, architecture: str) -> int | None:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, LongArray):
        return tokens.count
    claimed = header.metadata.get(f"{architecture}.vocab_size")
    return claimed if isinstance(claimed, int) else None
