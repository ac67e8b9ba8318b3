"""Fields of a Volcano Job beyond its pods, as Volcano's mutating webhook leaves them (Volcano 1.15 jobs/mutate)."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.jobs.network_topology import network_topology
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.volcano_jobs import (
    DependsOn,
    JobAction,
    JobEvent,
    JobVolume,
    LifecyclePolicy,
    PartitionPolicy,
    TaskSpec,
    VolcanoPhase,
    VolcanoSpec,
    VolcanoStatus,
)

MAX_RETRY = 3
_EVENTS = frozenset(JobEvent)
_ACTIONS = frozenset(JobAction)
_volcano_spec_PHASES = frozenset(VolcanoPhase)
_ON_SERVICE = ("tensorflow", "mpi", "pytorch", "ray")
"""Plugins that find the other pods by the names that the svc plugin gives them."""


def volcano_spec(spec: Reader, pod_sets: Sequence[PodSet]) -> VolcanoSpec:
    """Read a job's spec with the webhook's defaults; `pod_sets` are those of its tasks."""
    tasks = tuple(
        _defaulted(_volcano_spec_task(place), pods)
        for place, pods in zip(spec.items("tasks", 1000), pod_sets, strict=False)
    )
    needed = sum(task.min_available or 0 for task in tasks)
    return VolcanoSpec(
        queue=spec.text("queue") or "default",
        min_available=spec.number("minAvailable", 0, low=0) or needed,
        tasks=tasks,
        policies=_policies(spec),
        plugins=_with_needed(_plugins(spec)),
        max_retry=spec.number("maxRetry", 0, low=0) or MAX_RETRY,
        min_success=spec.optional("minSuccess"),
        ttl=_seconds(spec, "ttlSecondsAfterFinished"),
        priority_class=spec.text("priorityClassName"),
        scheduler_name=spec.text("schedulerName") or "volcano",
        network_topology=network_topology(spec),
        volumes=tuple(_volume(place) for place in spec.items("volumes", 1000)),
    )


def _volume(place: Reader) -> JobVolume:
    asked = place.mapping("volumeClaim")
    return JobVolume(
        claim=place.text("volumeClaimName"),
        makes="volumeClaim" in place,
        storage_class=asked.text("storageClassName") if "storageClassName" in asked else None,
        storage=resources(asked.mapping("resources"), "requests").get("storage", 0),
        access_modes=asked.texts("accessModes"),
        volume=asked.text("volumeName"),
    )


def _seconds(place: Reader, key: str) -> Span | None:
    seconds = place.optional(key, low=0)
    return None if seconds is None else seconds * SECOND


def _volcano_spec_task(place: Reader) -> TaskSpec:
    return TaskSpec(
        min_available=place.optional("minAvailable", low=0),
        policies=_policies(place),
        max_retry=place.number("maxRetry", 0),
        depends_on=_depends_on(place) if "dependsOn" in place else None,
        partition=_partition(place.mapping("partitionPolicy")) if "partitionPolicy" in place else None,
        topology_policy=place.text("topologyPolicy"),
        priority_class=place.down("template", "spec").text("priorityClassName"),
    )


def _defaulted(task: TaskSpec, pods: PodSet) -> TaskSpec:
    """Default a task's minAvailable to the pods of its minPartitions, or else to all its pods."""
    least = task.min_available
    if least is None:
        parted = task.partition is not None and task.partition.least > 0
        least = task.partition.least * task.partition.size if parted and task.partition is not None else pods.count
    return replace(task, min_available=least, max_retry=task.max_retry or MAX_RETRY)


def _depends_on(place: Reader) -> DependsOn:
    wanted = place.mapping("dependsOn")
    return DependsOn(wanted.texts("name"), wanted.text("iteration") == "any")


def _partition(place: Reader) -> PartitionPolicy:
    return PartitionPolicy(
        total=place.number("totalPartitions", 0),
        size=place.number("partitionSize", 0),
        least=place.number("minPartitions", 0),
        network_topology=network_topology(place),
    )


def _policies(place: Reader) -> tuple[LifecyclePolicy, ...]:
    return tuple(_policy(policy) for policy in place.items("policies", 1000))


def _policy(place: Reader) -> LifecyclePolicy:
    """Read a policy; unknown events are left out, and an unknown action becomes SyncJob."""
    events = (*place.texts("events"), place.text("event"))
    action = place.text("action")
    return LifecyclePolicy(
        action=JobAction(action) if action in _ACTIONS else JobAction.SYNC_JOB,
        events=tuple(dict.fromkeys(JobEvent(event) for event in events if event in _EVENTS)),
        exit_code=place.optional("exitCode"),
        timeout=place.span("timeout"),
    )


def _plugins(spec: Reader) -> dict[str, tuple[str, ...]]:
    """Return plugins with their arguments; arguments that are not strings are left out."""
    return {
        name: tuple(argument for argument in arguments if isinstance(argument, str))
        for name, arguments in spec.mapping("plugins").value.items()
        if isinstance(arguments, list)
    }


def _with_needed(plugins: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Add the plugins on which the given ones depend."""
    needed = dict(plugins)
    if any(name in plugins for name in _ON_SERVICE):
        needed.setdefault("svc", ())
    if "mpi" in plugins:
        needed.setdefault("ssh", ())
    return needed


def volcano_status(status: Reader) -> VolcanoStatus:
    """Read a job's status."""
    state = status.mapping("state")
    phase = state.text("phase")
    conditions = tuple(
        (VolcanoPhase(condition.text("status")), condition.moment("lastTransitionTime") or 0)
        for condition in status.items("conditions")
        if condition.text("status") in _volcano_spec_PHASES
    )
    return VolcanoStatus(
        phase=VolcanoPhase(phase) if phase in _volcano_spec_PHASES else VolcanoPhase.NEW,
        transition=state.moment("lastTransitionTime") or 0,
        conditions=conditions,
        tasks=_counts(status.mapping("taskStatusCount")),
        retry_count=status.number("retryCount", 0),
        version=status.number("version", 0),
        min_available=status.number("minAvailable", 0),
        **{name: status.number(name, 0) for name in ("pending", "running", "succeeded", "failed", "terminating")},
    )


def _counts(place: Reader) -> dict[str, dict[str, int]]:
    found = {}
    for name in place.value:
        phases = place.mapping(name).mapping("phase")
        found[name] = {phase: phases.number(phase, 0) for phase in phases.value}
    return found
