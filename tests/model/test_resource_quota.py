"""Names of jobs' API resources, as quotas on numbers of objects count them."""

import pytest

from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import LWS_GROUP
from gpuconsole.model.resource_quota import object_usage, resource_of

NAMES = {
    "Job": "jobs.batch",
    "CronJob": "cronjobs.batch",
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "RayCronJob": "raycronjobs.ray.io",
    "VolcanoJob": "jobs.batch.volcano.sh",
    "VolcanoCronJob": "cronjobs.batch.volcano.sh",
    "JobFlow": "jobflows.flow.volcano.sh",
    "JobTemplate": "jobtemplates.flow.volcano.sh",
    "Pod": "pods",
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_job_is_counted_under_the_plural_and_the_group_of_its_kind(kind: str) -> None:
    assert resource_of(Job(namespace="team", name="j", kind=kind)) == NAMES[kind]


def test_a_job_without_an_api_object_of_its_own_counts_in_no_quota() -> None:
    group = Job(namespace="team", name="j", kind=LWS_GROUP)
    assert object_usage(group) == {}
    with pytest.raises(KeyError, match=LWS_GROUP):
        resource_of(group)
