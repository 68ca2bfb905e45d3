"""Every ggml tensor type: id, name, block size and bytes per block."""

from __future__ import annotations

from cpubound.errors import UsageError
from cpubound.model.values import QuantType

# From ggml/include/ggml.h (ids) and ggml/src/ggml-common.h (blocks), llama.cpp commit
# 0c1e57098bba: id, name, elements per block, bytes per block.
_TABLE = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

# Types that files may still name and that no llama.cpp of today reads.
REMOVED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

QUANT_TYPES: tuple[QuantType, ...] = tuple(
    QuantType(name=name, id=id_, block_size=block_size, block_bytes=block_bytes)
    for id_, name, block_size, block_bytes in _TABLE
)

_BY_ID = {quant.id: quant for quant in QUANT_TYPES}
_BY_NAME = {quant.name: quant for quant in QUANT_TYPES}


def quant_type(name_or_id: str | int) -> QuantType:
    """Find a type by its ggml name (any case) or id.

    Raises ``UsageError`` for a name or id that this llama.cpp does not know.
    """
    if isinstance(name_or_id, str):
        found = _BY_NAME.get(name_or_id.upper())
    else:
        found = _BY_ID.get(name_or_id)
    if found is None:
        raise UsageError(
            f"unknown tensor type ({name_or_id}): give one of {', '.join(sorted(_BY_NAME))}"
        )
    return found


def is_known_type_id(id_: int) -> bool:
    """Tell whether this llama.cpp reads tensors of the type ``id_``."""
    return id_ in _BY_ID


def unknown_quant_type(id_: int) -> QuantType:
    """Stand in for a type that a file names and this table does not hold.

    It counts no bytes, so that what is known of the rest can still be computed; who shows
    figures must say that they leave tensors of this type out.
    """
    name = REMOVED_TYPES.get(id_)
    return QuantType(
        name=f"{name} (removed)" if name else f"unknown type {id_}",
        id=id_,
        block_size=1,
        block_bytes=0,
    )
