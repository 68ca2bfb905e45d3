"""Rented machines by type: ``aws:c7a.4xlarge``, ``azure:D16as_v7``, ``gcp:c3-highcpu-44``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache

import msgspec

from cpubound.errors import UsageError
from cpubound.machine.known_cpus import CLOUDS, FOLDER
from cpubound.package_data import read_toml

_AWS = re.compile(
    r"(?P<family>[a-z]+\d[a-z-]*)\.(?:metal-)?(?P<number>\d{0,3})(?P<unit>xlarge|xl|[a-z]+)"
)
_AZURE = re.compile(
    r"""(?:standard_)?(?P<letters>[a-z]{1,3})(?P<size>\d{1,3})
    (?:-(?P<constrained>\d{1,3}))?  # "16-4" pays for 16 vCPUs and runs 4
    (?P<features>[a-z]*)_v(?P<version>\d)""",
    re.VERBOSE,
)
_GCP = re.compile(r"(?P<family>[a-z]\d[a-z]?)-[a-z]+-(?P<vcpus>\d{1,3})(?:-[a-z]+)*")
# vCPUs of the sizes that AWS names instead of numbering (docs.aws.amazon.com, instance types);
# burstable families (t3, t4g) have two at every size below xlarge.
_AWS_VCPUS = {"medium": 1, "large": 2}
_AWS_BURSTABLE_SIZES = ("nano", "micro", "small", "medium", "large")


class CloudInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A type of rented machine; ``cpus`` are the names that it may have, the likeliest first."""

    cpus: tuple[str, ...]
    vcpus: int
    vcpus_per_core: int

    @property
    def cores(self) -> int:
        """Physical cores that its vCPUs run on."""
        return max(1, self.vcpus // self.vcpus_per_core)


class _Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: tuple[str, ...]
    vcpus_per_core: int
    metal_vcpus: int | None = None
    xlarge_vcpus: int = 4


class _Cloud(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    families: dict[str, _Family]


def find_instance(cloud: str, instance_type: str) -> CloudInstance:
    """Find a type of a cloud, such as ``find_instance("aws", "c7a.4xlarge")``.

    Raises ``UsageError`` for a cloud, a family or a size that is not known.
    """
    if cloud not in _clouds():
        raise UsageError(f"no cloud of this name ({cloud}): give one of {', '.join(_clouds())}")
    families = _clouds()[cloud].families
    name, vcpus = _READERS[cloud](instance_type.strip().lower(), families) or (instance_type, None)
    if not vcpus or name not in families:
        near = difflib.get_close_matches(name, families, n=4)
        raise UsageError(
            f"no type of {cloud} that is known ({instance_type}): give its CPU by name, with "
            f"cores and memory{', or a size of ' + ', '.join(near) if near else ''}"
        )
    family = families[name]
    return CloudInstance(cpus=family.cpus, vcpus=vcpus, vcpus_per_core=family.vcpus_per_core)


def _read_aws(name: str, families: Mapping[str, _Family]) -> tuple[str, int | None] | None:
    match = _AWS.fullmatch(name)
    if match is None:
        return None
    family = families.get(match["family"])
    return match["family"], None if family is None else _aws_vcpus(match, family)


def _aws_vcpus(match: re.Match[str], family: _Family) -> int | None:
    number, unit = match["number"], match["unit"]
    if unit in ("xl", "xlarge"):
        return int(number or 1) * family.xlarge_vcpus
    if number:
        return None
    if unit == "metal":
        return family.metal_vcpus
    burstable = match["family"].startswith("t") and unit in _AWS_BURSTABLE_SIZES
    return 2 if burstable else _AWS_VCPUS.get(unit)


def _read_azure(name: str, _: Mapping[str, _Family]) -> tuple[str, int | None] | None:
    match = _AZURE.fullmatch(name)
    if match is None:
        return None
    kind = next((letter for letter in "ap" if letter in match["features"]), "i")
    vcpus = int(match["constrained"] or match["size"])
    return f"{match['letters']}-{kind}-v{match['version']}", vcpus


def _read_gcp(name: str, _: Mapping[str, _Family]) -> tuple[str, int | None] | None:
    match = _GCP.fullmatch(name)
    return None if match is None else (match["family"], int(match["vcpus"]))


_READERS = {"aws": _read_aws, "azure": _read_azure, "gcp": _read_gcp}


@cache
def _clouds() -> dict[str, _Cloud]:
    return msgspec.convert(read_toml(*FOLDER, f"{CLOUDS}.toml"), dict[str, _Cloud])
