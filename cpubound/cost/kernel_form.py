"""How llama.cpp stands to our own kernels: the values of ``kernel_form.toml`` (package data).

One form for each instruction set. ``python -m calibrate kernel_form`` prints the file from
profiles that hold both our kernels and an engine stage.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class OwnKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one thread of a kernel of ours reached on the machine that was measured."""

    isa: str
    bytes_per_s: Positive


class Standing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thread of llama.cpp over one of a kernel of ours, in bytes per second.

    ``kernel`` is the type of ours, ``error`` the factor's standard error, relative.
    """

    kernel: str
    factor: Positive
    error: NotNegative


class TypeStanding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same of dense matrices of a type, in weights per second.

    A factor for each row length, or for each number of tokens that the weights multiply.
    """

    kernel: str
    factors: tuple[Positive, ...]
    error: NotNegative


class AttentionStanding(Standing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same of attention at one setting."""

    kv_type_k: str
    kv_type_v: str
    flash_attn: bool
    head_dim: int


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds at one thread and how many more for each doubling of the threads."""

    seconds: NotNegative
    more: NotNegative

    def at(self, doublings: float) -> float:
        """Return the seconds after so many doublings of one thread."""
        return self.seconds + self.more * doublings


class Growth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The exponent of the threads in a rate, with its standard error."""

    exponent: NotNegative
    error: NotNegative


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step costs whatever its bytes, on the machine that was measured."""

    token: Cost
    product: Cost
    expert_layer: Cost


class KernelForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How llama.cpp stands to our kernels on one instruction set.

    ``cpu_model`` is where that was measured; ``columns`` the row lengths of the types'
    factors and ``tokens`` the numbers of tokens of the batches'; ``sharpness`` how sharply
    threads reach the memory's limit.
    """

    cpu_model: str
    columns: tuple[int, ...]
    tokens: tuple[int, ...]
    sharpness: Positive
    attention_growth: Growth
    state_growth: Growth
    kernels: Mapping[str, OwnKernel]
    types: Mapping[str, TypeStanding]
    batches: Mapping[str, TypeStanding]  # the weights once, however many tokens share them
    experts: Mapping[str, Standing]  # by type, in weights per second too
    states: Mapping[str, Standing]  # by kind of recurrence
    attention: tuple[AttentionStanding, ...]
    costs: Costs


@cache
def read_forms() -> Mapping[str, KernelForm]:
    """Read the shipped forms by instruction set: ``x86``, ``arm``."""
    text = (files("cpubound.cost") / "kernel_form.toml").read_text("utf-8")
    return decode_forms(text)


def decode_forms(text: str) -> Mapping[str, KernelForm]:
    """Decode forms from TOML.

    Raises
    ------
    msgspec.ValidationError : a value that a form cannot have.
    """
    return msgspec.convert(tomllib.loads(text), dict[str, KernelForm])
