"""Validation of a new Volcano Job: tasks, policies, plugins, volumes, dependencies, its queue (jobs/validate, in its
order).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import Document, at, entries, number
from gpuconsole.model.apiserver.volcano.objections import Objection
from gpuconsole.model.apiserver.volcano.order import order_of
from gpuconsole.model.apiserver.volcano.policies import check_policies
from gpuconsole.model.apiserver.volcano.tasks import check_numa, check_partitions, check_pod_resources
from gpuconsole.model.apiserver.volcano.topology import BOTH, names_both
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.syntax import label_key, subdomain

PLUGINS = ("ssh", "svc", "env", "pytorch", "tensorflow", "mpi", "ray", "hcclrank")
_TASKS: Path = ("spec", "tasks")
_QUEUE: Path = ("spec", "queue")


def check_job(job: Document, *, pod_resources: bool = True) -> Iterator[Objection]:
    """Yield the errors in a new job, except those about its queue (`check_queue`).

    `pod_resources` is the feature gate PodLevelResources: resources of a whole pod are validated.
    """
    tasks = [task for task in entries(job, *_TASKS) if isinstance(task, dict)]
    if not tasks:
        yield Objection(_TASKS, "No task specified in job spec", "add a task", "required")
        return
    if not _has_master(job, tasks):
        path = ("spec", "plugins", "mpi")
        yield Objection(path, "The specified mpi master task was not found", "name a task that is there", "bad-plugin")
        return
    if names_both(at(job, "spec")):
        yield Objection(("spec", "networkTopology", "highestTierName"), BOTH, "keep one of them", "bad-topology")
    yield from _check_tasks(job, tasks, pod_resources)
    yield from _check_whole(job, tasks)


def _has_master(job: Document, tasks: list[Any]) -> bool:
    arguments = at(job, "spec", "plugins", "mpi")
    if not isinstance(arguments, list):
        return True
    given = [str(word).partition("=") for word in arguments]
    master = next((value for name, _, value in reversed(given) if name.lstrip("-") == "master"), "master")
    return any(task.get("name") == master for task in tasks)


def _check_tasks(job: Document, tasks: list[Any], pod_resources: bool) -> Iterator[Objection]:
    name, seen = str(at(job, "metadata", "name") or ""), set()
    for n, task in enumerate(tasks):
        path, own = (*_TASKS, n), str(task.get("name") or "")
        replicas, least = number(task, "replicas", default=0), task.get("minAvailable")
        if isinstance(least, int) and least > replicas:
            text = f" 'minAvailable' is greater than 'replicas' in task: {own}, job: {name};"
            yield Objection((*path, "minAvailable"), text, f"write {replicas} or less", "bad-min-available")
        if own in seen:
            yield Objection((*path, "name"), f" duplicated task name {own};", "rename one of them", "duplicate")
            break
        seen.add(own)
        yield from check_policies(entries(task, "policies"), (*path, "policies"), "spec.tasks.policies")
        pod = f"{name}-{own}-{n}"
        faults = label_key(pod)
        if faults:
            text = f"create pod with name {pod} validate failed [{' '.join(faults)}];"
            yield Objection((*path, "name"), text, "shorten the names of the job and the task", "bad-name")
        broken = list(check_pod_resources(task, path, n)) if pod_resources else []
        yield from broken or check_numa(task, path, n)
        yield from check_partitions(task, name, path)


def _check_whole(job: Document, tasks: list[Any]) -> Iterator[Objection]:
    name, total = str(at(job, "metadata", "name") or ""), sum(number(task, "replicas", default=0) for task in tasks)
    faults = label_key(name) if name else []
    if faults:
        text = f"create job with name {name} validate failed [{' '.join(faults)}]"
        yield Objection(("metadata", "name"), text, "choose another name", "bad-name")
    if total < number(job, "spec", "minAvailable", default=0):
        text = " job 'minAvailable' should not be greater than total replicas in tasks;"
        remedy = f"its tasks have {total} pods together ({total}): write {total} or less"
        yield Objection(("spec", "minAvailable"), text, remedy, "bad-min-available")
    yield from check_policies(entries(job, "spec", "policies"), ("spec", "policies"), "spec.policies")
    for plugin in at(job, "spec", "plugins") or {}:
        if plugin not in PLUGINS:
            yield Objection(
                ("spec", "plugins", str(plugin)),
                f" unable to find job plugin: {plugin};",
                _sla(str(plugin)) or f"Volcano has the job plugins {', '.join(PLUGINS)}",
                "unknown-plugin",
            )
    yield from _check_volumes(entries(job, "spec", "volumes"))
    yield from _check_dependencies(tasks)


def _sla(name: str) -> str:
    if name != "sla":
        return ""
    return "sla is a plugin of Volcano's scheduler: give the job the annotation sla-waiting-time, such as 30m"


def _check_volumes(volumes: list[Any]) -> Iterator[Objection]:
    """Report the first invalid volume."""
    seen: set[str] = set()
    for n, volume in enumerate(volumes):
        text = _volume_fault(volume, seen)
        if text:
            yield Objection(("spec", "volumes", n), text, "correct the volume", "bad-volume")
            return
        seen.add(str(volume.get("mountPath")))


def _volume_fault(volume: Any, seen: set[str]) -> str:
    place, claim, name = volume.get("mountPath"), volume.get("volumeClaim"), volume.get("volumeClaimName")
    if not place:
        return " mountPath is required;"
    if place in seen:
        return f" duplicated mountPath: {place};"
    if claim is None and not name:
        return " either VolumeClaim or VolumeClaimName must be specified;"
    if name and claim is not None:
        return (
            "conflict: If you want to use an existing PVC, just specify VolumeClaimName."
            "If you want to create a new PVC, you do not need to specify VolumeClaimName"
        )
    faults = subdomain(str(name)) if name else []
    return f"invalid VolumeClaimName {name} : [{' '.join(faults)}]" if faults else ""


def _check_dependencies(tasks: list[Any]) -> Iterator[Objection]:
    if any(task.get("dependsOn") is not None for task in tasks) and order_of(dependencies(tasks)) is None:
        text = " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);"
        yield Objection(_TASKS, text, "let no task depend on itself, or on one that is not there", "bad-dependencies")


def dependencies(tasks: list[Any]) -> dict[str, list[str]]:
    """Return the names of the tasks on which each task depends."""
    return {str(task.get("name") or ""): [str(one) for one in entries(task, "dependsOn", "name")] for task in tasks}


def check_queue(job: Document, queues: Mapping[str, Document]) -> Iterator[Objection]:
    """Validate that a job's queue exists, is open, and is a leaf."""
    name = str(at(job, *_QUEUE) or "")
    queue = queues.get(name)
    if queue is None:
        text = f' unable to find job queue: queue.scheduling.volcano.sh "{name}" not found;'
        remedy = f"define a Volcano Queue {name}, or use default"
        yield Objection(_QUEUE, text, remedy, "undefined-volcano-queue")
        return
    state = at(queue, "status", "state") or ""
    if state != "Open":
        text = f" can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;"
        yield Objection(_QUEUE, text, "open the queue, or choose another", "closed-volcano-queue")
    below = sum(at(other, "spec", "parent") == name for other in queues.values())
    if name == "root":
        text = " can not submit job to root queue;"
        yield Objection(_QUEUE, text, "choose a queue below it", "no-leaf-queue")
    elif below:
        text = f" can only submit job to leaf queue, queue `{name}` has {below} child queues;"
        yield Objection(_QUEUE, text, "choose a queue below it", "no-leaf-queue")
