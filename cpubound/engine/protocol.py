"""What the parent and the engine's child process say to each other: one JSON line each way."""

from __future__ import annotations

import msgspec

from cpubound.engine.values import EngineIdentity, GraphCount, PartTimes, RunSettings


class Identify(msgspec.Struct, frozen=True, kw_only=True, tag="identify"):
    """Ask which engine this is."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """Ask for tokens at a setting; ``prefill`` forbids filling the cache by transplant."""

    settings: RunSettings
    prefill: bool = False


class Rotate(msgspec.Struct, frozen=True, kw_only=True, tag="rotate"):
    """Ask for single tokens of several models in turn, ``passes`` times in random order."""

    runs: tuple[RunSettings, ...]
    passes: int
    seed: int


class CountGraph(msgspec.Struct, frozen=True, kw_only=True, tag="count_graph"):
    """Ask what one decode step at a setting reads, node by node."""

    settings: RunSettings


class TimeParts(msgspec.Struct, frozen=True, kw_only=True, tag="time_parts"):
    """Ask for the times of a step's parts; ``by_operator`` looks at every operator."""

    settings: RunSettings
    by_operator: bool


class Quantize(msgspec.Struct, frozen=True, kw_only=True, tag="quantize"):
    """Ask for ``blocks`` random blocks of a ggml type, quantised by ggml itself."""

    type_id: int
    block_size: int
    block_bytes: int
    blocks: int
    scale: float  # standard deviation of the weights
    seed: int


class CloseModel(msgspec.Struct, frozen=True, kw_only=True, tag="close_model"):
    """Ask to free a model."""

    model_path: str


Request = Identify | Run | Rotate | CountGraph | TimeParts | Quantize | CloseModel


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """The seconds of every decode step, in order."""

    samples_s: tuple[float, ...]
    load_s: float | None
    transplanted: bool


class Rotated(msgspec.Struct, frozen=True, kw_only=True, tag="rotated"):
    """The seconds of one token in each pass, for every run."""

    samples_s: tuple[tuple[float, ...], ...]


class Blocks(msgspec.Struct, frozen=True, kw_only=True, tag="blocks"):
    """Quantised blocks."""

    data: bytes


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The request was carried out."""


class Identity(msgspec.Struct, frozen=True, kw_only=True, tag="identity"):
    """Which engine answers."""

    identity: EngineIdentity


class Counted(msgspec.Struct, frozen=True, kw_only=True, tag="counted"):
    """What a decode step reads."""

    count: GraphCount


class TimedParts(msgspec.Struct, frozen=True, kw_only=True, tag="timed_parts"):
    """Where the time of decode steps went."""

    times: PartTimes


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """The request could not be carried out; ``kind`` names the class the parent raises."""

    kind: str  # "unavailable", "model_file", "usage", "machine"
    message: str


Reply = Tokens | Rotated | Blocks | Done | Identity | Counted | TimedParts | Failure

REQUEST_DECODER: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
REPLY_DECODER: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode_line(message: Request | Reply) -> bytes:
    """Write a message as one line of JSON, line end included."""
    return msgspec.json.encode(message) + b"\n"
