"""The scenario file as written: keys, defaults and their meaning. `scenario` turns it into a simulation.

Durations are strings such as `90s`, `40m` or `1h30m`; objects are Kubernetes objects. `read_steps` reads the commands
and expectations of each step. A change list is a file of such steps without a cluster, read for a what-if
(`read_changes`) and written by one (`to_change_list`):

horizon: 2h              # how far to look ahead
steps:
  - commands: [{type: set-quota, clusterQueue: cq-a, flavor: a100, resource: nvidia.com/gpu, nominal: 16}]
    create: [{apiVersion: batch/v1, kind: Job, …}]
  - advanceSeconds: 600  # ten minutes later
    delete: [team-a/train]
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct, defstruct, field, structs

from gpuconsole.model import commands
from gpuconsole.model.clock import LONGEST, SECOND, Span, Time, format_exactly, parse_span
from gpuconsole.model.commands import Command, Delete, Finish, InCluster, Later, Submit
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.documents.reader import decode_strictly
from gpuconsole.model.manifests import decode_objects
from gpuconsole.model.manifests.kinds import JOB_NAMES
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kube.profile import Score

Document = dict[str, Any]


class ScenarioError(ValueError):
    """A scenario is invalid; the text has one line for each error, with the valid alternatives."""


class SpreadForm(Struct, frozen=True, rename="camel"):
    """A log-normal distribution of durations; a plain string in its place is a constant duration."""

    median: str = "1h"
    sigma: float = 0.0
    least: str = "1s"
    most: str = "1000h"


class ShapeForm(Struct, frozen=True, rename="camel"):
    """A job size."""

    pods: int = 1
    gpus: int = 1
    weight: float = 1.0
    resources: dict[str, str | int | float] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    min_pods: int | None = None
    kinds: dict[str, float] = field(default_factory=dict)
    duration: SpreadForm | str | None = None


class StreamForm(Struct, frozen=True, rename="camel"):
    """A stream of job submissions; see `run_times.ArrivalStream`."""

    name: str
    namespace: str
    queue: str = ""
    per_hour: float = 1.0
    by_hour: tuple[float, ...] = ()
    kinds: dict[str, float] = field(default_factory=lambda: {"Job": 1.0})
    shapes: tuple[ShapeForm, ...] = (ShapeForm(),)
    duration: SpreadForm | str = SpreadForm(sigma=0.8)
    checkpoint: SpreadForm | str | None = None
    checkpointed: float = 1.0
    priorities: dict[str, float] = field(default_factory=dict)
    pod_priority_class: str = ""
    grace: str | None = None
    at_start: int = 0
    first: str = "0s"
    image: str | None = None


class UsageForm(Struct, frozen=True, rename="camel"):
    """Past usage of KAI's queues: a sliding window, with exponential decay by half-life (0s: no decay)."""

    window: str = "168h"
    half_life: str = "0s"


class PlacementForm(Struct, frozen=True, rename="camel"):
    """The scheduler that places pods, and its configuration."""

    engine: Literal["kube-scheduler", "Volcano", "KAI"] = "kube-scheduler"
    conf: str = ""
    """The engine's own configuration: its text, or a file relative to the scenario's own.

    Empty: that of Volcano's Helm chart, or KAI's default; for kube-scheduler, nodes are scored by `score` unless
    `profile` is named.
    """
    profile: str = ""
    """Only kube-scheduler: the schedulerName of a profile of conf, or of kube-scheduler's own, default-scheduler."""
    devices: str = ""
    """Only Volcano: its device-config.yaml, written out or as a file, with the MIG instances that GPUs divide into."""
    feature_gates: dict[str, bool] = {}
    """Only Volcano: Kubernetes' feature gates of its scheduler."""
    usage: UsageForm | None = None
    """Only KAI: past use counts in the fair shares."""
    score: Score = "binpack"
    gangs: bool = True
    preemption: bool = True


class GroupForm(Struct, frozen=True, rename="camel"):
    """A node group of the Cluster Autoscaler."""

    name: str
    instance_type: str
    zone: str = ""
    capacity_type: Literal["on-demand", "spot"] = "on-demand"
    min: int = 0
    max: int = 10
    size: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Document, ...] = ()
    priority: int = 0


class SpotForm(Struct, frozen=True, rename="camel"):
    """Spot interruptions; see `autoscaling.policy.SpotPolicy`."""

    notice: str = "2m"
    interruptions: float = 1.0
    critical_priority: int | None = None
    diversity: float = 0.1


class LinksForm(Struct, frozen=True, rename="camel"):
    """GPU interconnects of nodes whose annotations do not describe them."""

    wiring: str = ""
    """Groups of GPUs by index, `nvlink=0-3,4-7 switch=… numa=…`; empty: the usual wiring of the GPU model."""
    nvlink: int | None = None
    """GB/s inside an NVLink domain; None: that of the GPU model (A100 600, H100 900)."""
    network: int | None = None
    """GB/s between nodes; None: 25."""


class CapacityForm(Struct, frozen=True, rename="camel"):
    """Capacity: fixed nodes (generated where the objects have none), the Cluster Autoscaler or Karpenter."""

    kind: Literal["fixed", "cluster-autoscaler", "karpenter"] = "fixed"
    gpus_per_node: int = 8
    links: LinksForm = LinksForm()
    catalogue: Document | str | None = None
    """The instance-type catalogue, or a file that holds it, relative to the scenario's own."""
    startup: SpreadForm | str | None = None
    """Time from launching a machine until its node joins."""
    unavailable: tuple[str, ...] = ()
    """Unavailable offerings, as `type/zone/capacity type`; `*` matches any part."""
    spot: SpotForm = SpotForm()
    spot_to_spot_consolidation: bool = False
    groups: tuple[GroupForm, ...] = ()
    expander: Literal["least-waste", "most-pods", "least-nodes", "price", "priority", "random"] = "least-waste"
    scan_interval: str = "10s"
    new_pod_scale_up_delay: str = "0s"
    max_node_provision_time: str = "15m"
    scale_down_unneeded_time: str = "10m"
    scale_down_unready_time: str = "20m"
    scale_down_delay_after_add: str = "10m"
    scale_down_delay_after_failure: str = "3m"
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    ok_total_unready_count: int = 3
    max_total_unready_percentage: float = 45.0


class AutoscalerForm(Struct, frozen=True, rename="camel"):
    """Answers to ProvisioningRequests."""

    delay: str = "30s"
    failures: int = 0
    """Number of first attempts of a workload's check that fail whatever the free capacity."""


class QuantilesForm(Struct, frozen=True, rename="camel"):
    """A latency as quantiles; see `run_times.LatencyDistribution`."""

    p5: str
    p50: str
    p90: str
    p99: str
    max: str


class LatenciesForm(Struct, frozen=True, rename="camel"):
    """Latencies of controller steps, see `run_times.Latencies`: constants, or quantiles.

    Omitted steps have the measured latencies.
    """

    scheduling_cycle: QuantilesForm | str | None = None
    job_unsuspend: QuantilesForm | str | None = None
    pod_creation: QuantilesForm | str | None = None
    bind: QuantilesForm | str | None = None
    start: QuantilesForm | str | None = None
    job_suspend: QuantilesForm | str | None = None
    pod_deletion: QuantilesForm | str | None = None
    status_update: QuantilesForm | str | None = None
    workload_reconcile: QuantilesForm | str | None = None


class ScenarioAdmissionFairSharing(Struct, frozen=True, rename="camel"):
    """Admission fair sharing among LocalQueues of ClusterQueues with UsageBasedAdmissionFairSharing."""

    usage_half_life_time: str
    usage_sampling_interval: str = "5m"
    resource_weights: dict[str, float] = field(default_factory=dict)


class ResourceReplicasForm(Struct, frozen=True, rename="camel"):
    """One resource whose devices are shared."""

    name: str = "nvidia.com/gpu"
    replicas: int = 2
    rename: str = ""


class ReplicasForm(Struct, frozen=True, rename="camel"):
    """Time-slicing or MPS, as in the configuration of NVIDIA's device plugin."""

    resources: tuple[ResourceReplicasForm, ...] = ()
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


class MigForm(Struct, frozen=True, rename="camel"):
    """MIG instances by a configuration of mig-parted."""

    strategy: Literal["none", "single", "mixed"] = "mixed"
    config: str = "all-balanced"
    """Name of a configuration that mig-parted ships, or of one in `configs`."""
    configs: Document | str | None = None
    """Configurations as mig-parted reads them, or a file that holds them, relative to the scenario's own."""
    dynamic: bool = False
    """MIG instances are created for pods that need them, and deleted when these end."""


class SharingForm(Struct, frozen=True, rename="camel"):
    """GPU partitioning and sharing of some nodes."""

    node_selector: dict[str, str] = field(default_factory=dict)
    mig: MigForm | None = None
    time_slicing: ReplicasForm | None = None
    mps: ReplicasForm | None = None


class EngineForm(Struct, frozen=True, rename="camel"):
    """Admission, placement and all other settings of the simulated cluster."""

    admission: Literal["Kueue", "none"] = "Kueue"
    kueue_config: Document | str | None = None
    """Kueue's Configuration (config.kueue.x-k8s.io), or a file that holds it, relative to the scenario's own."""
    placement: PlacementForm = PlacementForm()
    capacity: CapacityForm = CapacityForm()
    sharing: SharingForm | tuple[SharingForm, ...] = ()
    """How GPUs are divided and shared: for all nodes, or of several rules the first that fits a node."""


class ClusterForm(Struct, frozen=True, rename="camel"):
    """A MultiKueue worker cluster: its objects, and manifests relative to the scenario's file."""

    objects: tuple[Document, ...] = ()
    files: tuple[str, ...] = ()


class StepForm(Struct, frozen=True, rename="camel"):
    """A step: time passes, then finish, delete, commands and create are run in this order, then `expect` is checked."""

    advance_seconds: float = 0.0
    finish: tuple[str, ...] = ()
    """`namespace/name` of workloads, jobs or pods."""
    delete: tuple[str, ...] = ()
    """`namespace/name` of a workload, job or pod, or `Kind/name`, `Kind/namespace/name` of anything."""
    commands: tuple[Document, ...] = ()
    """Commands of `model.commands`, such as `{type: fail-node, node: a100-1}`, keys in camelCase."""
    create: tuple[Document, ...] = ()
    expect: tuple[Document, ...] = ()
    max_cycles: int | None = None
    """Maximum cycles, in conformance scenarios only; a simulation runs cycles until they change nothing."""


class ScenarioForm(Struct, frozen=True, rename="camel"):
    """A complete scenario."""

    name: str = ""
    description: str = ""
    start: str = "2026-01-05T08:00:00Z"
    seed: int = 0
    objects: tuple[Document, ...] = ()
    files: tuple[str, ...] = ()
    """Manifests, relative to the scenario's own file."""
    clusters: dict[str, ClusterForm] = field(default_factory=dict)
    """Worker clusters by name, for MultiKueue; the scenario itself is their manager."""
    steps: tuple[StepForm, ...] = ()
    arrivals: tuple[StreamForm, ...] = ()
    durations: SpreadForm | str = SpreadForm()
    """Durations of work that does not state its own."""
    prices: Document = field(default_factory=dict)
    engine: EngineForm = EngineForm()
    checks: Literal["pass", "wait"] = "pass"
    """Admission checks without a controller here pass at once, or wait for an `answer-check` command."""
    autoscaler: AutoscalerForm = AutoscalerForm()
    wake_up_batch: str = ""
    """Interval in which requeues of inadmissible workloads are batched; empty: as in Kueue."""
    latencies: Literal["measured", "none"] | LatenciesForm | None = None
    """Latencies of controller steps; None: `run_times.DEFAULT_LATENCIES`, or none if a step has `expect`."""
    fair_sharing_enabled: bool = False
    fair_sharing: tuple[str, ...] = ()
    """Preemption strategies of fair sharing, in the order in which they are tried."""
    admission_fair_sharing: ScenarioAdmissionFairSharing | None = None
    feature_gates: dict[str, bool] = field(default_factory=dict)
    keep_finished: str = ""
    """Finished workloads are removed after this span; empty: they are kept."""


_FORMS: dict[str, type[Any]] = {
    "delete": commands.Delete,
    "set-active": commands.SetActive,
    "requeue": commands.Requeue,
    "set-priority": commands.SetPriority,
    "move-to-queue": commands.MoveToQueue,
    "set-stop-policy": commands.SetStopPolicy,
    "set-quota": commands.SetQuota,
    "set-weight": commands.SetWeight,
    "set-cohort": commands.SetCohort,
    "set-preemption": commands.SetPreemption,
    "set-taint": commands.SetTaint,
    "add-nodes": commands.AddNodes,
    "divide": commands.Divide,
    "reconfigure": commands.Reconfigure,
    "cordon": commands.Cordon,
    "drain": commands.Drain,
    "fail-node": commands.FailNode,
    "restore-node": commands.RestoreNode,
    "interrupt-spot": commands.InterruptSpot,
    "lose-cluster": commands.LoseCluster,
    "restore-cluster": commands.RestoreCluster,
    "answer-check": commands.AnswerCheck,
    "fail-pod": commands.FailPod,
    "scale": commands.Scale,
    "copy": commands.Copy,
    "finish": commands.Finish,
}
_WITHIN = "in-cluster"
COMMANDS = (*_FORMS, _WITHIN)
"""The types of commands that a step may give."""
_KINDS = {kind.__name__: table for kind, table in TABLES.items()}


class Step(Struct, frozen=True, kw_only=True):
    """The commands of one moment, and the expectations after them."""

    at: Time
    commands: tuple[Command, ...] = ()
    places: tuple[str, ...] = ()
    """Place of each command in the file, for messages."""
    expect: tuple[Mapping[str, Any], ...] = ()
    """As written; the runner of drills reads it."""


def read_steps(forms: Sequence[StepForm], start: Time, problems: list[str], names: GeneratedNames) -> tuple[Step, ...]:
    """Read steps and compute their times from `start`; errors are added to `problems`."""
    steps, at = [], start
    for number, form in enumerate(forms):
        path = f"steps[{number}]"
        if form.advance_seconds < 0:
            problems.append(f"{path}.advanceSeconds: {form.advance_seconds:g} is before the last step; time goes on")
        span = max(0.0, form.advance_seconds) * SECOND
        if span > LONGEST:
            value = f"{form.advance_seconds:g} is longer than can be simulated; 292 years are the most"
            problems.append(f"{path}.advanceSeconds: {value}")
        at += round(min(span, LONGEST))
        found = list(_read_commands(form, path, at, problems, names))
        orders, places = tuple(order for order, _ in found), tuple(place for _, place in found)
        steps.append(Step(at=at, commands=orders, places=places, expect=form.expect))
    return tuple(steps)


def decode_step_objects(
    documents: Sequence[Document], path: str, now: Time, problems: list[str], names: GeneratedNames
) -> tuple[Object, ...]:
    """Decode API objects as from files; errors are added to `problems`."""
    found, unread = decode_objects(documents, now=now, names=names)
    problems.extend(f"{path}[{document.position}]: {document.problem}" for document in unread)
    return found


_Placed = tuple[Command, str]
"""A command, and where it is written."""


def _read_commands(
    form: StepForm, path: str, at: Time, problems: list[str], names: GeneratedNames
) -> Iterator[_Placed]:
    yield from ((Finish(key), f"{path}.finish[{number}]") for number, key in enumerate(form.finish))
    for number, name in enumerate(form.delete):
        place = f"{path}.delete[{number}]"
        yield from ((order, place) for order in _read_deletion(name, place, problems))
    for number, document in enumerate(form.commands):
        yield from _read_command(document, f"{path}.commands[{number}]", at, problems, names)
    created = decode_step_objects(form.create, f"{path}.create", at, problems, names)
    if created:
        manifests = tuple(msgspec.json.encode(document).decode() for document in form.create)
        yield Submit(created, manifests), f"{path}.create"


class _WithinForm(Struct, frozen=True):
    """A step's events in a worker cluster: commands, then created objects."""

    type: str
    cluster: str
    commands: tuple[Document, ...] = ()
    create: tuple[Document, ...] = ()


def _read_worker_commands(
    document: Document, path: str, at: Time, problems: list[str], names: GeneratedNames
) -> Iterator[_Placed]:
    form = decode_strictly(document, _WithinForm, path, problems)
    if form is not None:
        step = StepForm(commands=form.commands, create=form.create)
        found = _read_commands(step, path, at, problems, names)
        yield from ((InCluster(form.cluster, order), place) for order, place in found)


def _read_command(
    document: Document, path: str, at: Time, problems: list[str], names: GeneratedNames
) -> Iterator[_Placed]:
    if document.get("type") == _WITHIN:
        yield from _read_worker_commands(document, path, at, problems, names)
        return
    form = _FORMS.get(str(document.get("type")))
    if form is None:
        problems.append(
            f"{path}.type: {clean(repr(document.get('type')), 60)} is no command; {', '.join(COMMANDS)} are"
        )
        return
    fields = {key: value for key, value in document.items() if key != "type"}
    found = decode_strictly(fields, _command_form(document["type"]), path, problems)
    if found is not None:
        subject = str(getattr(found, found.__struct_fields__[0]))
        yield form(**structs.asdict(found)), clean(f"{path} ({document['type']} {subject})", 120)


@lru_cache(maxsize=256)
def _command_form(kind: str) -> type[Struct]:
    """The fields of a command as written in files."""
    fields: list[Any] = [
        (one.name, one.type) if one.required else (one.name, one.type, _field_default(one))
        for one in structs.fields(_FORMS[kind])
    ]
    return defstruct(_FORMS[kind].__name__, fields, rename="camel", frozen=True)


def _field_default(one: structs.FieldInfo) -> Any:
    return field(default_factory=one.default_factory) if one.default is NODEFAULT else one.default


def to_camel_case(name: str) -> str:
    """A field's name as written in files."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _read_deletion(name: str, path: str, problems: list[str]) -> Iterator[Command]:
    kind, _, key = name.partition("/")
    if kind in JOB_NAMES and "/" in key:
        yield Delete("jobs", name)
    elif kind in _KINDS and key:
        yield Delete(_KINDS[kind], key)
    elif key and "/" not in key:
        yield Delete("", name)
    else:
        problems.append(f"{path}: {clean(repr(name), 80)} is no name; write namespace/name, or Kind/name")


Manifests = Callable[[Object], Mapping[str, Any]]


class ChangeForm(Struct, frozen=True, rename="camel"):
    """A change list as written in a file."""

    name: str = ""
    description: str = ""
    horizon: str = ""
    steps: tuple[StepForm, ...] = ()


class Changes(Struct, frozen=True, kw_only=True):
    """A list of changes: immediate and later commands."""

    name: str = ""
    commands: tuple[Command, ...] = ()
    places: tuple[str, ...] = ()
    """Place of each command in the file, for messages."""
    horizon: Span | None = None


def read_changes(
    documents: Sequence[Document],
    source: str,
    now: Time,
    *,
    objects: Sequence[Object] = (),
    names: GeneratedNames | None = None,
) -> Changes:
    """Read a list of changes. `objects` are manifests given with it: they are submitted first.

    `names` holds the names generated so far, such as those of `objects`. The first step is at `now`. Raises
    ScenarioError that names every wrong key of `source`.
    """
    if len(documents) > 1:
        raise ScenarioError(f"{source}: there are {len(documents)} lists of changes; give one")
    problems: list[str] = []
    form = decode_strictly(documents[0] if documents else {}, ChangeForm, "", problems)
    asked: list[Command] = [Submit(tuple(objects))] if objects else []
    places = ["manifests"] if objects else []
    horizon = None
    if form is not None:
        problems += (
            f"steps[{number}].expect: expectations belong in drills, not in changes"
            for number, step in enumerate(form.steps)
            if step.expect
        )
        for step in read_steps(form.steps, now, problems, names or GeneratedNames(str(now))):
            asked += (command if step.at == now else Later(step.at - now, command) for command in step.commands)
            places += step.places
        horizon = _read_horizon(form.horizon, problems)
    if not asked and not problems:
        problems.append("no changes; add steps with commands, create or delete")
    if problems or form is None:
        raise ScenarioError("\n".join(f"{source}: {problem}" for problem in problems))
    return Changes(name=form.name, commands=tuple(asked), places=tuple(places), horizon=horizon)


def to_change_list(commands: Iterable[Command], horizon: Span, manifest: Manifests) -> Document:
    """Write these commands as a change list, which `read_changes` can read again.

    `manifest` makes the manifest of an object that was submitted without one.
    """
    steps: list[Document] = []
    reached: Span = 0
    for command in sorted(commands, key=_command_time):
        moment, order = _command_time(command), command
        while isinstance(order, Later):
            order = order.command
        step: Document = {}
        if moment > reached:
            step["advanceSeconds"] = (moment - reached) / SECOND
            reached = moment
        steps.append(step | _write_change(order, manifest))
    return {"horizon": format_exactly(horizon), "steps": steps}


def _read_horizon(text: str, problems: list[str]) -> Span | None:
    if not text:
        return None
    try:
        return parse_span(text)
    except ValueError as error:
        problems.append(f"horizon: {error}")
        return None


def _command_time(command: Command) -> Span:
    return command.after + _command_time(command.command) if isinstance(command, Later) else 0


def _write_change(command: Command, manifest: Manifests) -> Document:
    match command:
        case Submit(objects, documents):
            return {"create": [msgspec.json.decode(text) for text in documents] or [dict(manifest(o)) for o in objects]}
        case Finish(key):
            return {"finish": [key]}
        case Delete(table, key):
            return {"delete": [_deletion_name(table, key)]}
        case InCluster(cluster, Submit() as order):
            return {"commands": [{"type": "in-cluster", "cluster": cluster, **_write_change(order, manifest)}]}
        case InCluster(cluster, order):
            return {"commands": [{"type": "in-cluster", "cluster": cluster, "commands": [_command_document(order)]}]}
        case _:
            return {"commands": [_command_document(command)]}


def _command_document(command: Command) -> Document:
    fields = msgspec.to_builtins(command)
    return {to_camel_case(name): value for name, value in fields.items()}


def _deletion_name(table: str, key: str) -> str:
    kinds = {name: kind.__name__ for kind, name in TABLES.items()}
    return key if table in ("", "jobs") else f"{kinds[table]}/{key}"
