"""Validation of Volcano Jobs, JobFlows and CronJobs (jobs/validate, and the webhooks of the others).

A new Job is validated in the order of jobs/validate: tasks with their policies, pod resources and partitions, then
plugins, volumes and dependencies; its queue last (`check_queue`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from gpuconsole.model.apiserver.jobs.framework import Document, at, entries, number
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import BOTH, Objection, names_both, order_of
from gpuconsole.model.clock import parse_cron
from gpuconsole.model.documents.findings import Path, label_key, subdomain
from gpuconsole.model.resources import canonical, parse_quantity

_WHOLE_POD = ("cpu", "memory")


def check_partitions(task: Document, job: str, path: Path) -> Iterator[Objection]:
    """Validate that the partitions add up to the replicas, and minPartitions to minAvailable."""
    policy = task.get("partitionPolicy")
    if not isinstance(policy, dict):
        return
    total, size = number(policy, "totalPartitions", default=0), number(policy, "partitionSize", default=0)
    replicas, least = number(task, "replicas", default=0), number(policy, "minPartitions", default=0)
    whose, place = f"in task: {task.get('name', '')}, job: {job}", (*path, "partitionPolicy")
    needed = task.get("minAvailable")
    if total <= 0:
        text, key = f"'TotalPartitions' must be greater than 0 {whose}", "totalPartitions"
    elif size <= 0:
        text, key = f"'PartitionSize' must be greater than 0 {whose}", "partitionSize"
    elif replicas != total * size:
        text, key = f"'Replicas' are not equal to TotalPartitions*PartitionSize {whose}", "totalPartitions"
    elif needed is not None and least > 0 and least * size != needed:
        text, key = f"'MinAvailable' is not equal to MinPartitions*PartitionSize {whose}", "minPartitions"
    else:
        text = key = ""
    if text:
        yield Objection((*place, key), text, "make the numbers agree", "bad-partitions")
    if names_both(policy):
        yield Objection((*place, "networkTopology", "highestTierName"), BOTH, "keep one of them", "bad-topology")


def check_numa(task: Document, path: Path, index: int) -> Iterator[Objection]:
    """Report the first container without whole CPUs in a task with a NUMA policy."""
    if task.get("topologyPolicy") in (None, "", "none"):
        return
    for key in ("containers", "initContainers"):
        pods: Path = ("template", "spec", key)
        before = len(entries(task, "template", "spec", "containers")) if key == "initContainers" else 0
        for n, container in enumerate(entries(task, *pods)):
            asked = at(container, "resources", "requests") or at(container, "resources", "limits") or {}
            cpu = _amount(asked.get("cpu", 0))
            if cpu.denominator != 1 or not cpu:
                text = f"the cpu request isn't  an integer in spec.task[{index}] container[{before + n}]."
                place = (*path, *pods, n, "resources", "requests")
                yield Objection(place, text, "ask for whole CPUs, or drop topologyPolicy", "bad-topology-policy")
                return


def check_pod_resources(task: Document, path: Path, index: int) -> Iterator[Objection]:
    """Validate the pod-level resources of a task: at least the requests of its containers, at most its limits."""
    spec = at(task, "template", "spec") or {}
    asked, limits = (at(spec, "resources", kind) or {} for kind in ("requests", "limits"))
    for name, text in asked.items():
        amount, place = _amount(text), (*path, "template", "spec", "resources", "requests")
        needed = sum(
            (_amount((at(c, "resources", "requests") or {}).get(name, 0)) for c in entries(spec, "containers")),
            Fraction(),
        )
        shown = canonical(text)
        if amount < needed and (name in _WHOLE_POD or name.startswith("hugepages-")):
            yield _about_pod(
                index,
                place,
                f'.requests[{name}]: Invalid value: "{shown}": must be greater than or equal to aggregate container '
                f"requests of {canonical(_text(needed))}",
            )
        elif name in limits and amount > _amount(limits[name]):
            limit = canonical(limits[name])
            yield _about_pod(
                index,
                place,
                f'.requests: Invalid value: "{shown}": must be less than or equal to {name} limit of {limit}',
            )


def _about_pod(index: int, place: Path, text: str) -> Objection:
    whole = f"spec.task[{index}].template.spec.resources{text}. "
    return Objection(place, whole, "raise it to what the containers ask for, at most to its limit", "bad-resources")


def _amount(text: Any) -> Fraction:
    try:
        return parse_quantity(text)
    except ValueError:
        return Fraction()


def _text(amount: Fraction) -> str:
    thousandths = amount * 1000
    return str(amount) if amount.denominator == 1 else f"{-(-thousandths.numerator // thousandths.denominator)}m"


EVENTS = (
    *("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed"),
    "JobUpdated",
)
"""Events that a lifecycle policy may name."""
ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob"),
    "ResumeJob",
)
"""Actions that a lifecycle policy may name."""
_REMEDIES = {
    "bad-value": f"it takes {', '.join(EVENTS)}",
    "bad-verb": f"it takes {', '.join(ACTIONS)}",
    "bad-policy": "give a policy events or an exit code, and each of them once",
}
Fault = tuple[str, str, Path]
"""Error in a lifecycle policy: text, code, and path below the list of policies."""


def check_policies(policies: Sequence[Any], path: Path, field: str) -> Iterator[Objection]:
    """Report the errors of the policies at a path as one objection; the first wrong policy ends the validation.

    `field` is the name of the field in Volcano's text.
    """
    events: set[str] = set()
    faults = list(_faults(policies, events, field))
    if "*" in events and len(events) > 1:
        faults.append(("if there's * here, no other policy should be here", "bad-policy", ()))
    if not faults:
        return
    count = "1 error" if len(faults) == 1 else f"{len(faults)} errors"
    lines = "".join(f"\t* {text}\n" for text, _, _ in faults)
    valid = f" valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}];"
    text = f"{count} occurred:\n{lines}\n{valid}"
    first, code, below = faults[0]
    yield PolicyObjection((*path, *below), text, _REMEDIES[code], code, first)


class PolicyObjection(Objection, frozen=True):
    """Error in lifecycle policies; its `problem` omits Volcano's list of all valid events and actions."""

    fault: str

    @property
    def problem(self) -> str:
        return self.fault


def _faults(policies: Sequence[Any], events: set[str], field: str) -> Iterator[Fault]:
    codes: set[int] = set()
    for n, policy in enumerate(policies):
        named, exit_code = _events(policy), policy.get("exitCode")
        if named and exit_code is not None:
            yield "must not specify event and exitCode simultaneously", "bad-policy", (n, "exitCode")
            return
        if not named and exit_code is None:
            yield "either event and exitCode should be specified", "bad-policy", (n,)
            return
        fault = _event_fault(n, policy, named, events, field) if named else _code_fault(n, exit_code, codes)
        if fault is not None:
            yield fault
            return


def _events(policy: Any) -> list[str]:
    single = policy.get("event")
    return list(dict.fromkeys([*map(str, entries(policy, "events")), *([str(single)] if single else [])]))


def _event_fault(n: int, policy: Any, named: list[str], events: set[str], field: str) -> Fault | None:
    action = str(policy.get("action") or "")
    listed = [str(event) for event in entries(policy, "events")]
    for event in named:
        place: Path = (n, "events", listed.index(event)) if event in listed else (n, "event")
        if event not in EVENTS:
            return f'{field}: Invalid value: "{event}": invalid policy event', "bad-value", place
        if action not in ACTIONS:
            return f'{field}: Invalid value: "{action}": invalid policy action', "bad-verb", (n, "action")
        if event in events:
            return f"duplicate event {event}  across different policy", "bad-policy", place
        events.add(event)
    return None


def _code_fault(n: int, code: Any, codes: set[int]) -> Fault | None:
    if code == 0:
        return "0 is not a valid error code", "bad-policy", (n, "exitCode")
    if code in codes:
        return f"duplicate exitCode {code}", "bad-policy", (n, "exitCode")
    codes.add(code)
    return None


PLUGINS = ("ssh", "svc", "env", "pytorch", "tensorflow", "mpi", "ray", "hcclrank")
_TASKS: Path = ("spec", "tasks")
_QUEUE: Path = ("spec", "queue")


def check_job(job: Document, *, pod_resources: bool = True) -> Iterator[Objection]:
    """Yield the errors in a new job, except those about its queue (`check_queue`).

    Pod-level resources are validated if `pod_resources` is true (feature gate PodLevelResources).
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


LONGEST_NAME = 52
"""Most characters of a CronJob's name."""
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")
_NOT_ORDERED = "jobflow Flow is not DAG"


def check_job_flow(flow: Document) -> Iterator[Objection]:
    """Report dependency cycles and missing dependencies."""
    graph = {str(at(one, "name") or ""): _targets(one) for one in entries(flow, "spec", "flows")}
    missing = missing_of(graph)
    if missing is not None:
        text = f"{_NOT_ORDERED}: vertex is not defined: {missing}"
        yield Objection(("spec", "flows"), text, "name a flow that is there", "bad-dependencies")
    elif order_of(graph) is None:
        yield Objection(("spec", "flows"), _NOT_ORDERED, "let no flow depend on itself", "bad-dependencies")


def _targets(flow: object) -> list[str]:
    return list(dict.fromkeys(str(target) for target in entries(flow, "dependsOn", "targets")))


def missing_of(graph: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first dependency that is missing in a graph (name → names on which it depends)."""
    return next((target for targets in graph.values() for target in targets if target not in graph), None)


def check_cron_job(cron: Document) -> Iterator[Objection]:
    """Validate the schedule, time zone and name of a CronJob."""
    yield from check_schedule(at(cron, "spec") or {})
    yield from check_cron_name(str(at(cron, "metadata", "name") or ""))


def check_schedule(spec: Document) -> Iterator[Objection]:
    """Validate the schedule (five fields without time zone) and the IANA time zone."""
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    text = _schedule_fault(schedule)
    if text:
        yield Objection(("spec", "schedule"), text, "write it as 0 3 * * *", "bad-schedule")
    if zone is None:
        return
    for text in _zone_faults(zone):
        yield Objection(("spec", "timeZone"), text, "write it as Europe/Berlin, or leave it out", "bad-time-zone")


def _schedule_fault(schedule: str) -> str:
    if not schedule:
        return " schedule is required, but got empty"
    if "TZ" in schedule:
        return " schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field"
    try:
        parse_cron(schedule)
    except ValueError:
        return "schedule is not a valid cron expression"
    return ""


def _zone_faults(zone: str) -> Iterator[str]:
    if not zone:
        yield " timeZone must be nil or non-empty string, got empty string"
        return
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            yield " unknown timeZone"
    if zone.lower() == "local":
        yield " timeZone can't be Local, and must be defined in https://www.iana.org/time-zones"
    elif not _is_zone(zone):
        yield " invalid timeZone"


def _is_zone(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        return False
    return True


def check_cron_name(name: str) -> Iterator[Objection]:
    """Validate the length of the name: its jobs' names are eleven characters longer."""
    path = ("metadata", "name")
    faults = label_key(name)
    if len(name) > LONGEST_NAME:
        text = (
            f"cronJob name must be no more than {LONGEST_NAME} characters to accommodate job name suffix (max 63 total)"
        )
        yield Objection(path, text, "shorten it", "too-long")
    elif faults:
        yield Objection(path, f'invalid cronJob name "{name}": {"; ".join(faults)}', "choose another name", "bad-name")
