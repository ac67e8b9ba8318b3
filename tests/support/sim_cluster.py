"""Small clusters for the simulation's tests: two teams in a cohort, nodes of 4 GPUs, and short lines of history."""

from collections.abc import Iterable, Sequence

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, parse_time
from gpuconsole.model.cluster import Node, Pod, PriorityClass
from gpuconsole.model.commands import Command, Submit
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    WorkloadPriorityClass,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy

START = parse_time("2026-01-05T08:00:00Z")
GPU = "nvidia.com/gpu"
A100 = {"accelerator": "a100-80gb"}
ANY, LOWER = PreemptionPolicy.ANY, PreemptionPolicy.LOWER_PRIORITY
RECLAIM = ClusterQueuePreemption(within_cluster_queue=LOWER, reclaim_within_cohort=ANY)
USUAL = SimPolicy()
UNQUEUED = SimPolicy(kueue=None)


def node(name: str, gpus: int = 4) -> Node:
    room = {GPU: gpus, "cpu": 64_000, "memory": 2**40, "pods": 110}
    return Node(name=name, labels={**A100, "kubernetes.io/hostname": name}, capacity=room, allocatable=room)


def nodes(count: int, gpus: int = 4) -> list[Object]:
    return [node(f"n{number}", gpus) for number in range(1, count + 1)]


def queue(name: str, nominal: int, *, cohort: str = "org", flavor: str = "a100") -> list[Object]:
    """A team: its ClusterQueue, its LocalQueue `lq` in its own namespace."""
    group = ResourceGroup((GPU,), (FlavorQuotas(flavor, {GPU: Quota(nominal)}),))
    return [
        ClusterQueue(
            name=name,
            uid=name,
            cohort=cohort,
            namespace_selector=LabelSelector(),
            resource_groups=(group,),
            preemption=RECLAIM,
        ),
        LocalQueue(namespace=name, name="lq", cluster_queue=name),
    ]


def template(gpus: int = 1, *, grace: Span = 30 * SECOND, restart: str = "Never") -> PodTemplate:
    return PodTemplate(
        containers=(Container(requests={GPU: gpus} if gpus else {}),),
        grace_period=grace,
        restart_policy=restart,
    )


def job(
    name: str,
    team: str = "red",
    *,
    gpus: int = 1,
    pods: int = 1,
    duration: Span | None = HOUR,
    checkpoint: Span | None = None,
    priority_class: str = "",
    queue: str = "lq",
    grace: Span = 30 * SECOND,
    kind: str = "Job",
    backoff_limit: int = 6,
    max_time: Span | None = None,
) -> Job:
    """A job of a team; its Workload's name has a hash of its uid, which is its name."""
    return Job(
        kind=kind,
        namespace=team,
        name=name,
        uid=name,
        queue=queue,
        workload_priority_class=priority_class,
        pod_sets=(PodSet(count=pods, template=template(gpus, grace=grace)),),
        duration=duration,
        checkpoint_interval=checkpoint,
        backoff_limit=backoff_limit,
        max_execution_time=max_time,
    )


def workload(name: str, team: str = "red", *, gpus: int = 1, pods: int = 1, **notes: str) -> Workload:
    """A bare Workload; `notes` are annotations such as duration="20m"."""
    return Workload(
        namespace=team,
        name=name,
        queue="lq",
        annotations={f"gpuconsole.io/{key.replace('_', '-')}": value for key, value in notes.items()},
        pod_sets=(PodSet(count=pods, template=template(gpus)),),
    )


def pod(name: str, *, gpus: int = 1, priority: int = 0, grace: Span = 30 * SECOND, duration: str = "") -> Pod:
    notes = {"gpuconsole.io/duration": duration} if duration else {}
    shape = template(gpus, grace=grace, restart="Always")
    return Pod(name=name, uid=name, priority=priority, template=shape, annotations=notes)


def classes() -> list[Object]:
    return [
        WorkloadPriorityClass(name="high", value=1000),
        WorkloadPriorityClass(name="low", value=10),
        PriorityClass(name="serving", value=500),
    ]


def two_teams(gpus: int = 8) -> list[Object]:
    """Red and blue, 4 GPUs each, in one cohort, on nodes of 4 GPUs."""
    flavor = ResourceFlavor(name="a100", node_labels=A100)
    return [flavor, *queue("red", 4), *queue("blue", 4), *nodes(gpus // 4), *classes()]


def start(objects: Iterable[Object], policy: SimPolicy = USUAL, seed: int = 1) -> Simulation:
    """A simulation whose first events are drained."""
    simulation = Simulation.from_objects(objects, policy=policy, seed=seed, start=START)
    simulation.drain()
    return simulation


def submit(simulation: Simulation, *things: Object) -> None:
    simulation.submit(Submit(things))


def run(simulation: Simulation, span: Span) -> list[str]:
    """Let time pass; what happened, in short."""
    simulation.advance(simulation.now + span)
    return log(simulation.drain())


def at(simulation: Simulation, *timed: tuple[Span, Command]) -> None:
    """Schedule commands by their distance from the start."""
    for span, command in timed:
        simulation.schedule_commands(START + span, command)


QUIET = (HistoryEventKind.PENDING, HistoryEventKind.POD_BOUND, HistoryEventKind.SUBMITTED)


def log(events: Sequence[Event], *, leave_out: Sequence[HistoryEventKind] = QUIET) -> list[str]:
    """Lines of history as `m:ss what subject details`, without what is in `leave_out`."""
    return [_line(event) for event in events if isinstance(event, HistoryEvent) and event.what not in leave_out]


def _line(event: HistoryEvent) -> str:
    minutes, rest = divmod(event.time - START, MINUTE)
    moment = f"{minutes}:{rest / SECOND:02.0f}"
    words = [moment, event.what.value, short(event.workload)]
    if event.by:
        words.append(f"by {short(event.by)}")
    if (
        event.what in (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED, HistoryEventKind.POD_FAILED)
        and event.lost_gpu_seconds
    ):
        words.append(f"lost {event.lost_gpu_seconds:g}s")
    if event.what in (
        HistoryEventKind.EVICTED,
        HistoryEventKind.PREEMPTED,
        HistoryEventKind.POD_EVICTED,
        HistoryEventKind.POD_FAILED,
        HistoryEventKind.QUEUE_CHANGED,
    ):
        words.append(event.reason)
    if event.what is HistoryEventKind.PLACES:
        words.append(event.reason)
    if event.what in (HistoryEventKind.NODE_DOWN, HistoryEventKind.NODE_UP, HistoryEventKind.NODE_CHANGED):
        words.append(f"{event.node} {event.reason}".strip())
    if event.what is HistoryEventKind.COMMAND_REFUSED:
        words.append(event.message)
    return " ".join(word for word in words if word)


def short(key: str) -> str:
    """`red/job-train-1a2b3` is red/train."""
    team, _, name = key.partition("/")
    kinds = ("job-", "pytorchjob-", "jobset-", "rayjob-", "sparkapplication-", "appwrapper-")
    for kind in kinds:
        if name.startswith(kind):
            return f"{team}/{name.removeprefix(kind).rpartition('-')[0]}"
    return key


def key_of(simulation: Simulation, name: str) -> str:
    """The key of the workload that `short` calls so."""
    return next(key for key in simulation.snapshot().workloads if short(key) == name)
