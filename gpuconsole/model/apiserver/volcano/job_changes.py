"""Update of a Volcano Job: only replicas, minAvailable and the priority class may change (jobs/validate)."""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import Document, at, entries, number
from gpuconsole.model.apiserver.volcano.objections import Objection, message_of
from gpuconsole.model.apiserver.volcano.tasks import check_partitions
from gpuconsole.model.apiserver.volcano.topology import BOTH, names_both
from gpuconsole.model.documents.findings import Path

_FROZEN = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec`"
    " and `PriorityClassName`"
)


def check_change(job: Document, old: Document) -> Iterator[Objection]:
    """Report the first error in an update."""
    total = 0
    for n, task in enumerate(entries(job, "spec", "tasks")):
        fault = _task_fault(task, ("spec", "tasks", n), str(at(job, "metadata", "name") or ""))
        if fault is not None:
            yield fault
            return
        total += number(task, "replicas", default=0)
    yield from list(_job_faults(job, old, total))[:1]


def _task_fault(task: Any, path: Path, job: str) -> Objection | None:
    name, replicas, least = task.get("name", ""), number(task, "replicas", default=0), task.get("minAvailable")
    if replicas < 0:
        text = f"'replicas' must be >= 0 in task: {name}"
        return Objection((*path, "replicas"), text, "write 0 or more", "out-of-range")
    if least is not None and least < 0:
        text = f"'minAvailable' must be >= 0 in task: {name}"
        return Objection((*path, "minAvailable"), text, "write 0 or more", "out-of-range")
    if least is not None and least > replicas:
        text = f"'minAvailable' must be <= 'replicas' in task: {name}"
        return Objection((*path, "minAvailable"), text, f"write {replicas} or less", "bad-min-available")
    parted = list(check_partitions(task, job, path))
    return Objection(parted[0].path, message_of(parted), parted[0].remedy, parted[0].code) if parted else None


def _job_faults(job: Document, old: Document, total: int) -> Iterator[Objection]:
    least: Path = ("spec", "minAvailable")
    needed = number(job, *least, default=0)
    if needed > total:
        text = "job 'minAvailable' must not be greater than total replicas"
        yield Objection(least, text, f"write {total} or less", "bad-min-available")
    if needed < 0:
        yield Objection(least, "job 'minAvailable' must be >= 0", "write 0 or more", "out-of-range")
    if names_both(at(job, "spec")):
        yield Objection(("spec", "networkTopology"), BOTH, "keep one of them", "bad-topology")
    if len(entries(job, "spec", "tasks")) != len(entries(old, "spec", "tasks")):
        text = "job updates may not add or remove tasks"
        yield Objection(("spec", "tasks"), text, "make another job", "immutable")
    if _frozen(job) != _frozen(old):
        yield Objection(("spec",), _FROZEN, "leave the rest as it was, or make another job", "immutable")


def _frozen(job: Document) -> dict[str, Any]:
    """Return the immutable part of a job's spec, without the claim names that the controller generates."""
    spec = {k: v for k, v in (at(job, "spec") or {}).items() if k not in ("minAvailable", "priorityClassName")}
    free = ("replicas", "minAvailable")
    tasks = [{k: v for k, v in task.items() if k not in free} for task in entries(spec, "tasks")]
    volumes = [
        {k: v for k, v in volume.items() if k != "volumeClaimName" or volume.get("volumeClaim") is None}
        for volume in entries(spec, "volumes")
    ]
    return {**spec, "tasks": tasks, "volumes": volumes}
