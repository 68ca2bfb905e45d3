"""cpubound.machine.cloud_instances and its table."""

from __future__ import annotations

import pytest

from cpubound.errors import UsageError
from cpubound.machine.cloud_instances import _clouds, find_instance
from cpubound.machine.cpu_names import find_cpu


@pytest.mark.parametrize(
    ("cloud", "name", "cpu", "vcpus", "cores"),
    [
        # vCPUs as the clouds' own pages list them.
        ("aws", "c7a.4xlarge", "EPYC 9R14", 16, 16),
        ("aws", "m7i.2xlarge", "Xeon Platinum 8488C", 8, 4),
        ("aws", "c7i-flex.xlarge", "Xeon Platinum 8488C", 4, 2),
        ("aws", "r8g.medium", "Graviton4", 1, 1),
        ("aws", "m6i.metal", "Xeon Platinum 8375C", 128, 64),
        ("aws", "c7i.metal-48xl", "Xeon Platinum 8488C", 192, 96),
        ("aws", "hpc7a.96xlarge", "EPYC 9R14", 192, 192),
        ("aws", "t4g.small", "Graviton2", 2, 2),
        ("aws", "t3.medium", "Xeon Platinum 8259CL", 2, 1),
        ("azure", "Standard_D16as_v7", "EPYC 9V45", 16, 8),
        ("azure", "d8ps_v6", "Cobalt 100", 8, 8),
        ("azure", "Standard_E16-4as_v4", "EPYC 7452", 4, 2),
        ("azure", "Standard_D32s_v6", "Xeon Platinum 8573C", 32, 16),
        ("azure", "Standard_FX24ms_v2", "Xeon Platinum 8573C", 24, 12),
        ("gcp", "c3-highcpu-44", "Xeon Platinum 8481C", 44, 22),
        ("gcp", "t2d-standard-8", "EPYC 7B13", 8, 8),
        ("gcp", "c4a-standard-16", "Axion", 16, 16),
        ("gcp", "c3d-standard-16-lssd", "EPYC 9B14", 16, 8),
    ],
)
def test_a_type_tells_its_cpu_and_cores(
    cloud: str, name: str, cpu: str, vcpus: int, cores: int
) -> None:
    instance = find_instance(cloud, name)
    assert instance.cpus[0] == cpu
    assert (instance.vcpus, instance.cores) == (vcpus, cores)


def test_every_family_runs_on_cpus_of_the_table() -> None:
    for cloud in _clouds().values():
        for family in cloud.families.values():
            for name in family.cpus:
                assert find_cpu(name).name == name


@pytest.mark.parametrize(
    ("cloud", "name", "says"),
    [
        ("aws", "c7b.large", "a size of .*c7a"),
        ("aws", "c7a.hugelarge", "no type of aws"),
        ("aws", "c7a.0xlarge", "no type of aws"),
        ("aws", "c7a.99999999xlarge", "no type of aws"),
        ("aws", "m7i.metal", "no type of aws"),
        ("azure", "Standard_Q2_v9", "no type of azure"),
        ("gcp", "e2-standard-4", "no type of gcp"),
        ("gcp", "", "no type of gcp"),
        ("hetzner", "cpx51", "give one of aws, azure, gcp"),
    ],
)
def test_a_type_that_is_not_known_is_refused(cloud: str, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_instance(cloud, name)
