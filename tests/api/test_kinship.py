"""A CPU's name tells whose relative it is, as far as it tells."""

from __future__ import annotations

import pytest

from cpubound.api.kinship import kinship_of_name


@pytest.mark.parametrize(
    ("name", "design", "family", "cluster"),
    [
        ("AMD EPYC 9V45 96-Core Processor", "zen5", "zen", 8),
        ("AMD EPYC 7542 32-Core Processor", "zen2", "zen", 4),
        ("Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", "ice_lake_server", "core server", None),
        ("Neoverse-N2", "neoverse_n2", "neoverse", None),
    ],
)
def test_a_name_tells_design_family_and_cluster(name, design, family, cluster) -> None:
    found = kinship_of_name(name)
    assert (found.micro_architecture, found.family, found.cluster_cores) == (
        *(design, family),
        cluster,
    )


def test_a_hypervisors_name_without_a_model_scatters_its_cpus() -> None:
    assert kinship_of_name("AMD EPYC-Milan Processor").is_scattered
    assert not kinship_of_name("AMD EPYC 7R13 Processor").is_scattered


def test_a_name_that_tells_no_more_than_the_maker_is_of_a_family_alone() -> None:
    assert kinship_of_name("Intel(R) Xeon(R) Platinum").family == "core server"
    assert kinship_of_name("AMD EPYC Processor").micro_architecture == ""
    assert kinship_of_name("a toaster").family == ""


def test_a_cluster_is_one_link_until_the_next_is_used() -> None:
    packed = kinship_of_name("AMD EPYC 9V45 96-Core Processor")
    assert packed.links(4, 8) == packed.links(8, 8) == 2
    assert packed.links(16, 16) == 4
    # On a whole machine the system spreads threads over all clusters.
    assert packed.links(4, 96) == 8
    scattered = kinship_of_name("AMD EPYC-Turin Processor")
    assert [scattered.links(count, 8) for count in (1, 8)] == [1, 8]
