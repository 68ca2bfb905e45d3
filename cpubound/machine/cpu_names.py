"""Find a CPU by its name as ``lscpu``, a shop or a cloud writes it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache

from cpubound.errors import UsageError
from cpubound.machine.known_cpus import (
    UNIFORM,
    KnownCores,
    KnownCpu,
    MicroArchitecture,
    known_cpus,
    micro_architectures,
    other_names,
)

MAX_NAME = 200
_FEW = 4
_FREQUENCY = re.compile(r"@?\s*(\d+(?:\.\d+)?)\s*ghz\b")
# What stands in names beside the model: trademarks, graphics, counts of cores, generations.
_NOISE = re.compile(
    r"""\((?:r|tm|c)\)|[®™©]
    |\bw/.*|\bwith\b.*\b(?:graphics|npu|radeon|vega)\b.*
    |\b(?:dual|quad|six|eight|twelve|sixteen|\d+)[\s-]cores?\b
    |\b\d+(?:st|nd|rd|th)\s+gen(?:eration)?\b
    |\b0\b(?=\s*@)|\b(?:no\s+tsx|ibrs|ibpb|noapic|microsoft\s+surface\s+edition|oem\s+only)\b""",
    re.VERBOSE,
)
_DROPPED_WORDS = frozenset(
    re.findall(
        r"\w+",
        """amd intel arm aws amazon qualcomm nvidia microsoft google
        cpu cpus processor processors soc apu chip series scalable""",
    )
)
_GPU = re.compile(
    r"\b(?:geforce|quadro|tesla|instinct|radeon|rtx|gtx|gpu|arc [ab]\d{3}|[abhv][12]00|a10g?"
    r"|l40?s?|t4|mi\d{3}[ax]?)\b"
)
_WORDS = re.compile(r"[a-z]+[a-z0-9]*|\d+[a-z0-9]*(?:\.\d+[a-z0-9]*)?")
# A word of the brand written together with its number: "ryzen7", "graviton4", "e5-2686v4", "m3max".
_JOINED = (
    (re.compile(r"\b(ryzen|epyc|xeon|graviton|cobalt|axion|threadripper|ultra|pi)(\d)"), r"\1 \2"),
    (re.compile(r"\b(\d{4}[a-z]?)(v\d)\b"), r"\1 \2"),
    (re.compile(r"\b(m\d)(pro|max|ultra)\b"), r"\1 \2"),
)


def find_cpu(name: str) -> KnownCpu:
    """Find the CPU of this name: any case, with trademarks, frequency or graphics in it.

    A part of a name is enough where only one CPU has it ("7840u"). A design of cores ("zen 4",
    "cortex-a76") is found too, as a CPU whose cores have no count.

    Raises ``UsageError``, which names the nearest, for a name that is not in the table, that
    several CPUs share, that a hypervisor makes up, or that is a GPU's.
    """
    if len(name) > MAX_NAME:
        raise UsageError(f"too long for a CPU's name ({len(name)} characters): at most {MAX_NAME}")
    lowered = name.lower()
    words = name_words(lowered)
    if not words:
        raise UsageError(
            f"no CPU is named ({name}): give its model as lscpu or the shop writes it, such as "
            "ryzen 7 7840u or xeon platinum 8375c"
        )
    found = _index().get(words_with_frequency(lowered)) or _index().get(words)
    if found is not None:
        return found
    joined = _joined_index().get("".join(words))
    if joined is not None:
        return joined
    return _only_one_with(words, name)


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a lower-case name that tell CPUs apart, without the noise of brands."""
    text = _FREQUENCY.sub(" ", _NOISE.sub(" ", name)).replace("+", " ")
    for pattern, replacement in _JOINED:
        text = pattern.sub(replacement, text)
    words = [word for word in _WORDS.findall(text) if word not in _DROPPED_WORDS]
    # AMD sells the same silicon with and without PRO; Apple's Pro is another chip.
    if "ryzen" in words or "threadripper" in words:
        words = [word for word in words if word != "pro"]
    return tuple(words)


def words_with_frequency(name: str) -> tuple[str, ...]:
    """Return the words with the frequency: all that tells generations that a cloud hides."""
    frequency = _FREQUENCY.search(name)
    return name_words(name) + ((f"{frequency[1]}ghz",) if frequency else ())


@cache
def _index() -> Mapping[tuple[str, ...], KnownCpu]:
    names = {cpu.name: cpu for cpu in known_cpus()}
    index = {
        name_words(design.title.lower()): _cpu_of_design(design)
        for design in micro_architectures().values()
    }
    for name, cpu in [*names.items(), *((o, names[n]) for o, n in other_names().items())]:
        index[words_with_frequency(name.lower())] = cpu
    return index


@cache
def _joined_index() -> Mapping[str, KnownCpu]:
    return {"".join(words): cpu for words, cpu in _index().items()}


def _cpu_of_design(design: MicroArchitecture) -> KnownCpu:
    return KnownCpu(
        name=design.title,
        series=design.title,
        segment=None,
        cores=(
            KnownCores(
                kind=UNIFORM, micro_architecture=design, count=None, l2_bytes=design.l2_bytes
            ),
        ),
        threads=None,
        last_level_caches=(),
        memory=(),
        max_sockets=None,
        year=design.year,
        source=design.source,
    )


def _only_one_with(words: tuple[str, ...], name: str) -> KnownCpu:
    """Find the one CPU whose name has these words, in their order."""
    candidates = {cpu.name: cpu for known, cpu in _index().items() if _in_order(words, known)}
    few = ", ".join(list(candidates)[:_FEW])
    if candidates and not any(word[-1].isdigit() or word[0].isdigit() for word in words):
        raise UsageError(
            f"a brand or what a hypervisor makes of it ({name}): give the model, such as {few}"
        )
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if candidates:
        raise UsageError(f"several CPUs have this name ({name}): give all of it, such as {few}")
    if _GPU.search(" ".join(words)):
        raise UsageError(f"a GPU ({name}): cpubound predicts CPUs; give the CPU of that machine")
    raise UsageError(
        f"no CPU of this name is known ({name}): {_nearest(words)}; or give what you know, as in "
        "zen 4, 8 cores, ddr5-5600-2ch"
    )


def _in_order(words: tuple[str, ...], known: tuple[str, ...]) -> bool:
    rest = iter(known)
    return all(word in rest for word in words)


def _nearest(words: tuple[str, ...]) -> str:
    by_text = {" ".join(known): cpu.name for known, cpu in _index().items()}
    near = difflib.get_close_matches(" ".join(words), by_text, n=_FEW, cutoff=0.5)
    near = near or difflib.get_close_matches(words[-1], by_text, n=_FEW, cutoff=0.0)
    names = dict.fromkeys(by_text[text] for text in near)
    return f"the nearest are {', '.join(names)}"
