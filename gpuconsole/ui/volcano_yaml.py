"""A Volcano Job in the form of its manifest (batch.volcano.sh/v1alpha1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, format_exactly, format_time
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.volcano import (
    LifecyclePolicy,
    NetworkTopology,
    PartitionPolicy,
    TaskSpec,
    VolcanoSpec,
    VolcanoStatus,
)
from gpuconsole.ui.pod_yaml import present, template_fields

_COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "version")


def volcano_manifest(job: Job, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The job with its tasks, policies, plugins and status; empty fields are omitted."""
    assert job.volcano is not None
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": volcano_job_spec(job.volcano, job.pod_sets),
        **present(status=_status(job.volcano_status)),
    }


def volcano_job_spec(spec: VolcanoSpec, pod_sets: Sequence[PodSet]) -> dict[str, Any]:
    """The spec of a Volcano Job, or of the template of one."""
    tasks = [_task(pods, own) for pods, own in zip(pod_sets, spec.tasks, strict=False)]
    return {**_spec(spec), "tasks": tasks}


def _spec(spec: VolcanoSpec) -> dict[str, Any]:
    return present(
        schedulerName=spec.scheduler_name,
        queue=spec.queue,
        priorityClassName=spec.priority_class,
        minAvailable=spec.min_available,
        minSuccess=spec.min_success,
        maxRetry=spec.max_retry,
        ttlSecondsAfterFinished=None if spec.ttl is None else spec.ttl // SECOND,
        networkTopology=network_topology_fields(spec.network_topology),
        plugins={name: list(arguments) for name, arguments in spec.plugins.items()},
        policies=[_policy(policy) for policy in spec.policies],
    )


def _task(pods: PodSet, own: TaskSpec) -> dict[str, Any]:
    # The class of the job stands in the job; in our model also in each template without one.
    template = template_fields(replace(pods.template, priority_class=own.priority_class))
    wanted = own.depends_on
    depends = None
    if wanted is not None:
        depends = present(name=list(wanted.tasks), iteration="any" if wanted.any else "")
    return {
        "name": pods.name,
        "replicas": pods.count,
        **present(
            minAvailable=own.min_available,
            maxRetry=own.max_retry,
            dependsOn=depends,
            topologyPolicy=own.topology_policy,
            partitionPolicy=_partition(own.partition),
            policies=[_policy(policy) for policy in own.policies],
            template=template,
        ),
    }


def _policy(policy: LifecyclePolicy) -> dict[str, Any]:
    return present(
        action=policy.action.value,
        events=[event.value for event in policy.events],
        exitCode=policy.exit_code,
        timeout=None if policy.timeout is None else format_exactly(policy.timeout),
    )


def _partition(policy: PartitionPolicy | None) -> dict[str, Any]:
    if policy is None:
        return {}
    return present(
        totalPartitions=policy.total,
        partitionSize=policy.size,
        minPartitions=policy.least,
        networkTopology=network_topology_fields(policy.network_topology),
    )


def network_topology_fields(asked: NetworkTopology | None) -> dict[str, Any]:
    """A networkTopology of a job, a partition or a PodGroup; empty without one."""
    if asked is None:
        return {}
    return present(mode=asked.mode, highestTierAllowed=asked.highest_tier, highestTierName=asked.highest_tier_name)


def _status(status: VolcanoStatus) -> dict[str, Any]:
    since = format_time(status.transition) if status.transition else ""
    return present(
        state=present(phase=status.phase.value, lastTransitionTime=since),
        **{name: getattr(status, name) or None for name in _COUNTS},
        retryCount=status.retry_count or None,
        minAvailable=status.min_available or None,
        taskStatusCount={name: {"phase": dict(phases)} for name, phases in status.tasks.items()},
        conditions=[
            {"status": phase.value, "lastTransitionTime": format_time(time)} for phase, time in status.conditions
        ],
    )
