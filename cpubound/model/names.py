"""Models by the names that people and programs give them.

``llama3.1:8b`` and ``qwen3:8b-q4_K_M`` are Ollama's, ``Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf``
is a file's, ``unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M`` a repository's of Hugging Face.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from cpubound.model.catalog import catalog_names
from cpubound.model.ftype import file_type, is_file_type
from cpubound.package_data import read_toml

# llama_ftype's descriptions where they are not the name (llama_model_ftype_name,
# src/llama-model-loader.cpp, commit 0c1e57098bba); "mostly" and "(guessed)" are of old builds.
_SIZES = {"SMALL": "S", "MEDIUM": "M", "LARGE": "L"}
_LABEL = re.compile(
    r"(?<![A-Z0-9])(IQ\d_(?:XXS|XS|S|M|NL)|TQ\d_\d|Q\d_[01K]|B?F16|F32|MXFP4)"
    r"(?:_(S|M|L|XL))?(?![A-Z0-9_])( MIX)?(?: - (SMALL|MEDIUM|LARGE))?"
)
_VARIANT = re.compile(r"_(?:R[48]|[48]_[48])(?![A-Z0-9])|[_ ]MOE(?![A-Z0-9])")
# Bits alone mean what most people download of so many.
_BITS = re.compile(r"(?<![A-Z0-9])(?:Q([2-8])|([2-8])-?BIT|(?:FP|F)(16|32)|(QAT))(?![A-Z0-9_])")
_BY_BITS = {
    "2": "Q2_K",
    "3": "Q3_K_M",
    "4": "Q4_K_M",
    "5": "Q5_K_M",
    "6": "Q6_K",
    "8": "Q8_0",
    "16": "F16",
    "32": "F32",
    "QAT": "Q4_0",
}
_TYPE_TAIL = re.compile(r"[-_. ](?:ud-)?(?:i?q\d|b?f16|fp16|f32|fp32|mxfp4|tq\d|\d-?bit).*$")
# Words that name an edition, not another shape.
_EDITIONS = re.compile(
    r"[-_ .](?:instruct|it|chat|coder|base|preview|thinking|text|gguf|hf|ud|i1|qat|latest|imatrix"
    r"|v\d(\.\d)?|\d{4})(?=[-_ .]|$)"
)
_PUBLISHER = re.compile(r"^(?:meta-(?=llama)|[a-z][a-z0-9-]*_(?=[a-z]))")
_HUB = re.compile(r"^(?:https?://)?(?:hf\.co|huggingface\.co)/")


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenName:
    """What a name means in the catalogue."""

    name: str
    file_type_name: str | None  # None where it names none


def read_name(text: str) -> WrittenName | None:
    """Return what a name as people write it means, None where that is not certain.

    An edition that changes no shape (instruct, a date) and a publisher are left out; what else is
    added to a name may be another model.
    """
    parts = _HUB.sub("", text).split("/")
    if len(parts) > 2:
        return None
    written = re.sub(r"\.gguf$", "", parts[-1].lower()).replace(":", "-")
    type_name = file_type_in(written)
    if type_name is None and _TYPE_TAIL.search(written):
        return None  # a type that there is not
    found = (_catalog_name(candidate) for candidate in _candidates(written))
    name = next((name for name in found if name is not None), None)
    return None if name is None else WrittenName(name=name, file_type_name=type_name)


def file_type_in(text: str) -> str | None:
    """Return the file type that a label or name says: ``Q4_K - Medium`` is ``Q4_K_M``.

    A type of K without a size is the medium one (Q6_K has none), bits alone are the usual type of
    so many; a row-interleaved variant (``_R4``, ``_8_8``) of a fork is its plain type. None for
    what llama.cpp does not write.
    """
    upper = text.upper()
    found = _LABEL.search(_VARIANT.sub("", upper))
    if found is None:
        bits = _BITS.search(upper)
        return None if bits is None else _BY_BITS[next(filter(None, bits.groups()))]
    base, size, is_mix, written = found.groups()
    size = "M" if is_mix else size or _SIZES.get(written or "")
    if is_mix:
        base = base.rpartition("_")[0]
    for name in (f"{base}_{size}" if size else "", base, f"{base}_M", f"{base}_MOE"):
        if name and is_file_type(name):
            return file_type(name).name
    return None


def catalog_name_in(text: str) -> str | None:
    """Return the catalogue's name for a model that a file or label names, None if there is none.

    As ``read_name``, but the last word of a name is dropped too where that helps: only for who
    checks the model by its size as well.
    """
    name = re.split(r"[\\/]", text)[-1].lower()
    name = re.sub(r"\.gguf$|\(.*?\)|-\d{5}-of-\d{5}", "", name).strip()
    candidates = tuple(_candidates(name))
    shorter = (c[: c.rfind("-")] for c in candidates if "-" in c)
    found = (_catalog_name(candidate) for candidate in (*candidates, *shorter))
    return next((known for known in found if known is not None), None)


def _candidates(written: str) -> Iterator[str]:
    """Yield a name in lower case without its file type, then without editions and publisher."""
    name = _TYPE_TAIL.sub("", written).replace(" ", "-").strip("-.")
    bare = _EDITIONS.sub("", name)
    yield from (name, bare, _PUBLISHER.sub("", name), _PUBLISHER.sub("", bare))


def _catalog_name(written: str) -> str | None:
    key = _squeeze(written)
    names = _names_by_key()
    if key in names:
        return names[key]
    # The active weights of a mixture are often left out.
    mixture = re.compile(rf"{re.escape(key)}a\d.*")
    mixtures = [name for known, name in names.items() if mixture.fullmatch(known)]
    return mixtures[0] if len(mixtures) == 1 else None


def _squeeze(name: str) -> str:
    return re.sub(r"[-_ :]", "", name)


@cache
def _names_by_key() -> Mapping[str, str]:
    """Return the catalogue's names by what is left of them without separators."""
    tags: Mapping[str, str] = read_toml("model", "tags.toml")
    return {
        **{_squeeze(tag): name for tag, name in tags.items()},
        **{_squeeze(name): name for name in catalog_names()},
    }
