"""Names of jobs' API resources, as quotas on numbers of objects count them."""

import pytest

from gpuconsole.model.job import Job
from gpuconsole.model.resource_quota import resource_of

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
