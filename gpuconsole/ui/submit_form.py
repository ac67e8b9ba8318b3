"""Reads the submit form: the request, the problems of each field, and the request's prospects."""

import re
from collections.abc import Collection, Mapping

from gpuconsole.insight.index.available_quota import DeviceChoice, Headroom, choice_of, device_choices
from gpuconsole.insight.index.demand import pod_accelerators
from gpuconsole.model.clock import Span, format_exactly, parse_span
from gpuconsole.model.device_units import DeviceUnit, counted_units
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import Finding, Severity
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.paint import GLYPHS, Painted
from gpuconsole.ui.template_jobs import JobTemplateRequest
from gpuconsole.ui.templates import BY_ID, TEMPLATES, JobTemplate
from gpuconsole.ui.widgets.form import Choices
from gpuconsole.ui.widgets.textpane import text_line

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MOST_GPUS = 100_000
MOST_PODS = 10_000
WHOLE_GPUS = DeviceChoice()


def read(
    values: Mapping[str, str], covered: frozenset[str] = frozenset(), device: DeviceChoice = WHOLE_GPUS
) -> tuple[JobTemplateRequest, dict[str, str]]:
    """The request in the fields, and problems by field id; an invalid field counts as its smallest value."""
    problems: dict[str, str] = {}
    if device.device_class and values["template"] == "trainjob":
        problems["device"] = "a TrainJob cannot claim devices"
    name = values["name"].strip()
    if not _NAME.fullmatch(name) or len(name) > 63:
        problems["name"] = "only a-z, 0-9 and -, at most 63 characters" if name else "required"
    if not values["namespace"]:
        problems["namespace"] = "required"
    request = JobTemplateRequest(
        namespace=values["namespace"],
        name=name,
        queue=values["queue"],
        priority_class=values["priority"],
        gpus=_number(values, "gpus", 0, MOST_GPUS, problems),
        pods=_number(values, "pods", 1, MOST_PODS, problems),
        duration=_span(values, "duration", problems),
        checkpoint=_span(values, "checkpoint", problems),
        resource=device.resource,
        device_class=device.device_class,
        covered=covered,
    )
    return request, problems


def _number(values: Mapping[str, str], field: str, least: int, most: int, problems: dict[str, str]) -> int:
    text = values[field].strip()
    if not text.isdecimal() or not least <= int(text) <= most:
        problems[field] = f"{least} to {most:,}"
        return least
    return int(text)


def _span(values: Mapping[str, str], field: str, problems: dict[str, str]) -> Span | None:
    text = values[field].strip()
    if not text:
        return None
    try:
        span = parse_span(text)
    except ValueError:
        problems[field] = "use 30m, 1h30m or 2d"
        return None
    if span <= 0:
        problems[field] = "must be > 0"
    return span


def defaults(template: JobTemplate) -> dict[str, str]:
    """A template's default sizes, by field id."""
    return {
        "gpus": str(template.gpus),
        "pods": str(template.pods),
        "duration": format_exactly(template.duration) if template.duration is not None else "",
        "checkpoint": format_exactly(template.checkpoint) if template.checkpoint is not None else "",
    }


def of_job(snapshot: Snapshot, job: Job) -> dict[str, str]:
    """The fields for a job like this one."""
    kinds = {
        "PyTorchJob": "pytorch",
        "JobSet": "jobset",
        "RayJob": "rayjob",
        "RayCluster": "raycluster",
        "Deployment": "deployment",
        "StatefulSet": "statefulset",
        "LeaderWorkerSet": "workerset",
        "MPIJob": "mpi",
        "TrainJob": "trainjob",
        "CronJob": "nightly",
    }
    asked = [(_devices_of(snapshot, job.namespace, pod_set.template), pod_set.count) for pod_set in job.pod_sets]
    amounts = [(amount, device) for devices, _ in asked for device, amount in devices.items()]
    count, device = max(amounts, key=lambda pair: pair[0], default=(0, WHOLE_GPUS.key))
    pods = sum(pods for devices, pods in asked if device in devices) or 1
    plain = "training" if pods == 1 and count > 1 else "notebook" if pods == 1 else "sweep"
    return {
        "template": kinds.get(job.kind, plain),
        "namespace": job.namespace,
        "queue": job.queue,
        "priority": job.workload_priority_class,
        "device": device,
        "gpus": str(count),
        "pods": str(pods),
        "duration": format_exactly(job.duration) if job.duration else "",
        "checkpoint": format_exactly(job.checkpoint_interval) if job.checkpoint_interval else "",
    }


def _devices_of(snapshot: Snapshot, namespace: str, template: PodTemplate) -> dict[str, int]:
    """Key of a device choice → how many of it one pod requests; of alternative devices the first."""
    found = pod_accelerators(template)
    for claim in template.resource_claims:
        made = snapshot.resource_claim_templates.get(f"{namespace}/{claim.template}")
        for request in made.requests if made is not None else ():
            chosen = request.options[0] if request.options else request
            key = choice_of(snapshot, "", chosen.device_class).key
            found[key] = found.get(key, 0) + chosen.count
    return found


def free_name(snapshot: Snapshot, namespace: str, template: str, sent: Collection[str] = ()) -> str:
    """An unused name in the namespace; `sent` are the keys of jobs just submitted."""
    number = 1
    taken = {job.name for job in snapshot.jobs.all() if job.namespace == namespace}
    taken |= {key.rpartition("/")[2] for key in sent}
    while f"{template}-{number}" in taken:
        number += 1
    return f"{template}-{number}"


def template_choices(device: DeviceChoice) -> Choices:
    """The templates, with their sizes in the unit of the chosen devices."""
    return [(template.id, template.title_in(device.unit)) for template in TEMPLATES]


def device_words(snapshot: Snapshot) -> Choices:
    """The accelerators that can be requested, with how many the nodes offer: `amd.com/gpu  16 GPUs`."""
    return [
        (one.key, f"{one.key}  {counted_units(one.total, one.unit) if one.total else 'no nodes'}")
        for one in device_choices(snapshot)
    ]


def namespace_choices(snapshot: Snapshot) -> Choices:
    """Namespaces with a LocalQueue first."""
    with_queue = sorted({queue.namespace for queue in snapshot.local_queues.all()})
    others = sorted(set(snapshot.namespaces) - set(with_queue))
    return [*((name, name) for name in with_queue), *((name, f"{name}  (no LocalQueue)") for name in others)]


def queue_choices(rooms: tuple[Headroom, ...], namespace: str, device: DeviceChoice) -> Choices:
    """The namespace's LocalQueues with their available quota, and the choice to use none."""
    queues = [(room.name, queue_words(room, device)) for room in rooms if room.namespace == namespace]
    return [*queues, ("", "none (not managed by Kueue)")]


def queue_words(room: Headroom, device: DeviceChoice) -> str:
    """One line for a queue: `lq-research → cq-research  4 available (0 without borrowing) · 1 pending`."""
    own = max((flavor.own_left for flavor in room.of(device)), default=0)
    quota = (
        f"{room.best(device)} available ({own} without borrowing)" if room.of(device) else f"no quota for {device.key}"
    )
    free = f"⚠ {room.problem}" if room.problem else quota
    waits = f" · {room.pending} pending" if room.pending else ""
    return f"{room.name} → {room.cluster_queue}  {free}{waits}"


def priority_choices(snapshot: Snapshot, queued: bool) -> Choices:
    """WorkloadPriorityClasses for a job in a queue, PriorityClasses for any other; the highest first."""
    if queued:
        classes = [(one.value, one.name) for one in snapshot.workload_priority_classes.all()]
    else:
        classes = [(one.value, one.name) for one in snapshot.priority_classes.all()]
    return [("", "none: priority 0"), *((name, f"{name}  {value}") for value, name in sorted(classes, reverse=True))]


def covered_by(snapshot: Snapshot, room: Headroom | None) -> frozenset[str]:
    """The resources covered by a queue's quota."""
    queue = snapshot.cluster_queues.get(room.cluster_queue) if room is not None else None
    groups = queue.resource_groups if queue is not None else ()
    return frozenset(resource for group in groups for resource in group.covered_resources)


def request_prospects(snapshot: Snapshot, request: JobTemplateRequest, room: Headroom | None) -> list[Painted]:
    """The prospects of a request by quota and node sizes."""
    device = choice_of(snapshot, request.resource, request.device_class)
    wanted = request.gpus * request.pods
    lines: list[Painted] = []
    if request.gpus > device.largest:
        words = f"no node has {counted_units(request.gpus, device.unit)}: the largest has {device.largest}"
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), words))
    if room is None:
        return [
            *lines,
            text_line((f"{GLYPHS['held']} ", "held"), "no queue: kube-scheduler places its pods at once, by priority"),
        ]
    flavors = room.of(device)
    most = max((flavor.potential for flavor in flavors), default=0)
    if room.problem:
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), room.problem))
    elif wanted and not flavors:
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), f"{room.cluster_queue} has no quota for {device.key}"))
    elif wanted > most:
        asked = counted_units(wanted, device.unit)
        words = f"requests {asked}; the maximum capacity of {room.cluster_queue} is {most}"
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), words))
    elif wanted <= room.best(device):
        lines.append(text_line((f"{GLYPHS['good']} ", "good"), f"{_fitting(wanted, device.unit)} available quota now"))
    else:
        words = f"{_fitting(wanted, device.unit, fit=False)} available quota: pending, or preempts (ctrl+o: what-if)"
        lines.append(text_line((f"{GLYPHS['pending']} ", "pending"), words))
    for flavor in flavors:
        numbers = f"{flavor.available} available ({flavor.own_left} without borrowing), max {flavor.potential}"
        lines.append(text_line((f"  {flavor.flavor}: ", "dim"), numbers))
    return lines


def _fitting(count: int, unit: DeviceUnit, fit: bool = True) -> str:
    """`1 GPU fits`, `8 MIG 1g.10gb instances do not fit`."""
    does = "does" if count == 1 else "do"
    return f"{counted_units(count, unit)} {('fits' if count == 1 else 'fit') if fit else f'{does} not fit'}"


def finding_lines(findings: tuple[Finding, ...]) -> list[Painted]:
    """Validation findings, worst first, without references: those are checked against the cluster."""
    shown = [finding for finding in findings if not finding.code.startswith("undefined-")]
    shown.sort(key=lambda finding: list(Severity).index(finding.severity))
    looks = {Severity.ERROR: ("✖", "fault"), Severity.WARNING: ("⚠", "pending"), Severity.NOTE: ("·", "dim")}
    lines: list[Painted] = []
    for finding in shown:
        sign, role = looks[finding.severity]
        lines.append(
            text_line((f"{sign} ", role), (f"{finding.path}: ", "dim"), f"{finding.problem}; {finding.remedy}")
        )
    return lines


def template_of(values: Mapping[str, str]) -> JobTemplate:
    """The chosen template."""
    return BY_ID.get(values["template"], TEMPLATES[0])
