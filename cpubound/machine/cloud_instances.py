"""Rented machines by type: ``aws:c7a.4xlarge``, ``azure:D16as_v7``, ``gcp:c3-highcpu-44``."""

from __future__ import annotations

import difflib
import re
from functools import cache

import msgspec

from cpubound.errors import UsageError
from cpubound.machine.known_cpus import CLOUDS, FOLDER
from cpubound.package_data import read_toml

_AWS = re.compile(
    r"(?P<family>[a-z]+\d[a-z-]*)\.(?P<size>metal-)?(?P<number>\d*)(?P<unit>xl|xlarge|large|medium)"
)
_AZURE = re.compile(
    r"(?:standard_)?(?P<letter>[a-z])[a-z]*?(?P<size>\d+)(?:-(?P<vcpus>\d+))?(?P<features>[a-z]*)_v(?P<version>\d+)"
)
_GCP = re.compile(r"(?P<family>[a-z]\d[a-z]?)-[a-z]+-(?P<vcpus>\d+)(?:-[a-z]+)*")
# vCPUs of the sizes that AWS names instead of numbering: docs.aws.amazon.com, instance types.
_AWS_VCPUS = {"medium": 1, "large": 2}
_AWS_XLARGE_VCPUS = 4


class CloudInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A type of rented machine; ``cpus`` are the names that it may have, the likeliest first."""

    name: str
    cpus: tuple[str, ...]
    vcpus: int
    vcpus_per_core: int
    source: str

    @property
    def cores(self) -> int:
        """Physical cores that its vCPUs run on."""
        return max(1, self.vcpus // self.vcpus_per_core)


class _Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: tuple[str, ...]
    vcpus_per_core: int


class _Cloud(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    families: dict[str, _Family]


def cloud_names() -> tuple[str, ...]:
    """Return the prefixes of clouds whose types are known."""
    return tuple(_clouds())


def find_instance(cloud: str, instance_type: str) -> CloudInstance:
    """Find a type of a cloud, such as ``find_instance("aws", "c7a.4xlarge")``.

    Raises ``UsageError`` for a cloud, a family or a size that is not known.
    """
    if cloud not in _clouds():
        raise UsageError(f"no cloud of this name ({cloud}): give one of {', '.join(_clouds())}")
    found = _READERS[cloud](instance_type.strip().lower())
    families = _clouds()[cloud].families
    if found is None or found[0] not in families:
        near = difflib.get_close_matches(found[0] if found else instance_type, families, n=4)
        raise UsageError(
            f"no type of {cloud} that is known ({instance_type}): give its CPU by name, with "
            f"cores and memory{', or a family like ' + ', '.join(near) if near else ''}"
        )
    name, vcpus = found
    family = families[name]
    return CloudInstance(
        name=f"{cloud}:{instance_type.strip()}",
        cpus=family.cpus,
        vcpus=vcpus,
        vcpus_per_core=family.vcpus_per_core,
        source=_clouds()[cloud].source,
    )


def _read_aws(name: str) -> tuple[str, int] | None:
    match = _AWS.fullmatch(name)
    if match is None:
        return None
    unit, number = match["unit"], match["number"]
    if unit in _AWS_VCPUS:
        return None if number or match["size"] else (match["family"], _AWS_VCPUS[unit])
    return match["family"], int(number or 1) * _AWS_XLARGE_VCPUS


def _read_azure(name: str) -> tuple[str, int] | None:
    match = _AZURE.fullmatch(name)
    if match is None:
        return None
    kind = next((letter for letter in "ap" if letter in match["features"]), "i")
    # A constrained size ("16-4") pays for 16 vCPUs and runs 4.
    vcpus = match["vcpus"] or match["size"]
    return f"{match['letter']}-{kind}-v{match['version']}", int(vcpus)


def _read_gcp(name: str) -> tuple[str, int] | None:
    match = _GCP.fullmatch(name)
    return None if match is None else (match["family"], int(match["vcpus"]))


_READERS = {"aws": _read_aws, "azure": _read_azure, "gcp": _read_gcp}


@cache
def _clouds() -> dict[str, _Cloud]:
    return msgspec.convert(read_toml(*FOLDER, f"{CLOUDS}.toml"), dict[str, _Cloud])
