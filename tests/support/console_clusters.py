"""Small worlds for the screens' tests: objects and lines of history that a recording plays."""

from collections.abc import Iterable, Sequence

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.health.engines import Engine, EnginesInForce
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time, parse_time
from gpuconsole.model.cluster import Namespace, Node, Pod, PodPhase
from gpuconsole.model.commands import Submit
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.labels import LabelSelector, Taint, Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    WorkloadPriorityClass,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, Workload
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import Latencies
from tests.support.recorded_backend import RecordedBackend

KUEUE = EnginesInForce(admission=Engine("Kueue 0.19", "Kueue"))
NOW: Time = parse_time("2026-01-05T09:14:20Z")
FLAVOR = "a100-80gb"
REFUSED = "couldn't assign flavors to pod set main: "

HOSTILE = (
    "[red]x[/red]",
    "[/oops]",
    "[@click=app.bell()]x",
    "a\x1b]0;pwned\x1b\\b",
    "c\x9b31md",
    "rtl\u202egnp",
    "wide 漢字 ⚠️ 👩‍💻",
    "",
)
"""Names that would crash a screen, or reach the terminal, if any text were trusted."""


def cluster_queue(name: str, nominal: int, borrowing: int | None = None) -> ClusterQueue:
    quotas = FlavorQuotas(FLAVOR, {GPU: Quota(nominal, borrowing)})
    return ClusterQueue(
        name=name,
        cohort="org-cohort",
        namespace_selector=LabelSelector(),
        resource_groups=(ResourceGroup((GPU,), (quotas,)),),
        preemption=ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
    )


def node(name: str, gpus: int = 8, **more: object) -> Node:
    room = {"cpu": 128_000, "memory": 2**40, GPU: gpus, "pods": 110}
    labels = {"kubernetes.io/hostname": name, "accelerator": FLAVOR}
    taints = (Taint(GPU, "present", "NoSchedule"),)
    return Node(name=name, labels=labels, taints=taints, capacity=room, allocatable=room, **more)  # type: ignore[arg-type]


def pod_set(gpus: int, count: int = 1) -> PodSet:
    containers = (Container(requests={GPU: gpus}),)
    return PodSet(count=count, template=PodTemplate(containers=containers, tolerations=(Toleration(GPU, "Exists"),)))


def waiting(name: str, gpus: int, namespace: str = "research", priority: int = 500, ago: int = 12 * MINUTE) -> Workload:
    """A workload that waits for quota, and was refused."""
    short = f"insufficient unused quota for {GPU} in flavor {FLAVOR}, 2 more needed"
    return Workload(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        created=NOW - ago,
        owner=f"Job/{namespace}/{name}",
        queue=f"lq-{namespace}",
        priority=priority,
        pod_sets=(pod_set(gpus),),
        conditions=(Condition("QuotaReserved", False, "Pending", REFUSED + short, NOW - ago),),
        inadmissible=True,
    )


def running(name: str, gpus: int, namespace: str = "research", priority: int = 500, ago: int = HOUR) -> Workload:
    """A workload that holds quota and runs."""
    since = NOW - ago
    usage = {GPU: gpus}
    return Workload(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        created=since,
        owner=f"Job/{namespace}/{name}",
        queue=f"lq-{namespace}",
        priority=priority,
        pod_sets=(pod_set(gpus),),
        conditions=(
            Condition("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue", since),
            Condition("Admitted", True, "Admitted", "The workload is admitted", since),
            Condition("PodsReady", True, "Started", "All pods reached readiness and the workload is running", since),
        ),
        admission=Admission(
            cluster_queue=f"cq-{namespace}", pod_sets=(PodSetAssignment(flavors={GPU: FLAVOR}, usage=usage),)
        ),
    )


def job_of(workload: Workload) -> Job:
    """The job that a workload stands for."""
    phase = JobPhase.RUNNING if workload.admitted else JobPhase.SUSPENDED
    return Job(
        namespace=workload.namespace,
        name=workload.name,
        created=workload.created,
        queue=workload.queue,
        pod_sets=workload.pod_sets,
        suspended=not workload.admitted,
        duration=4 * HOUR,
        phase=phase,
        started=workload.created + 10 * SECOND if workload.admitted else 0,
    )


def pod_on(workload: Workload, where: str, first: int) -> Pod:
    """The pod of a running workload, on the GPUs of a node from `first` on."""
    count = workload.gpus
    return Pod(
        namespace=workload.namespace,
        name=f"{workload.name}-0",
        created=workload.created,
        template=workload.pod_sets[0].template if workload.pod_sets else PodTemplate(),
        priority=workload.priority,
        job=workload.owner,
        workload=workload.key,
        pod_set="main",
        phase=PodPhase.RUNNING,
        node=where,
        gpus=tuple(range(first, first + count)),
        bound=workload.created,
        started=workload.created + 10 * SECOND,
    )


def org_cohort() -> list[Object]:
    """24 GPUs: research runs 12 of its 8 (rlhf borrows), prod 8 of 16; rlhf-2 waits for 6."""
    llm, embed, rlhf = running("llm-ft", 4), running("embed", 2, ago=50 * MINUTE), running("rlhf", 6, ago=30 * MINUTE)
    serve = running("serve", 8, "prod", 10_000, 2 * HOUR)
    pending = waiting("rlhf-2", 6)
    workloads = [llm, embed, serve, rlhf, pending]
    return [
        *(Namespace(name=name, labels={"kubernetes.io/metadata.name": name}) for name in ("research", "prod")),
        WorkloadPriorityClass(name="research-default", value=500),
        WorkloadPriorityClass(name="production", value=10_000),
        *(node(name) for name in ("node-1", "node-2", "node-3")),
        ResourceFlavor(name=FLAVOR, node_labels={"accelerator": FLAVOR}, node_taints=()),
        Cohort(name="org-cohort"),
        cluster_queue("cq-research", 8, 8),
        cluster_queue("cq-prod", 16, 0),
        LocalQueue(namespace="research", name="lq-research", cluster_queue="cq-research"),
        LocalQueue(namespace="prod", name="lq-prod", cluster_queue="cq-prod"),
        *(job_of(workload) for workload in workloads),
        *workloads,
        pod_on(serve, "node-1", 0),
        pod_on(llm, "node-2", 0),
        pod_on(embed, "node-2", 4),
        pod_on(rlhf, "node-3", 0),
    ]


def history() -> list[HistoryEvent]:
    """An hour of it: rlhf was reclaimed by prod once, and a notebook evicted for llm-ft."""
    return [
        HistoryEvent(
            time=NOW - 2 * HOUR,
            what=HistoryEventKind.SUBMITTED,
            workload="prod/serve",
            queue="cq-prod",
            gpus=8,
            priority=10_000,
        ),
        HistoryEvent(
            time=NOW - HOUR,
            what=HistoryEventKind.PREEMPTED,
            workload="dev/notebook-2",
            queue="cq-research",
            by="research/llm-ft",
            by_queue="cq-research",
            reason="InClusterQueue",
            message="Preempted to accommodate a workload in the ClusterQueue",
            gpus=1,
            priority=100,
            by_priority=500,
            lost_gpu_seconds=360.0,
            cost=0.22,
        ),
        HistoryEvent(
            time=NOW - 31 * MINUTE,
            what=HistoryEventKind.SUBMITTED,
            workload="research/rlhf",
            queue="cq-research",
            gpus=6,
        ),
        HistoryEvent(
            time=NOW - 30 * MINUTE,
            what=HistoryEventKind.PREEMPTED,
            workload="research/rlhf",
            queue="cq-research",
            by="prod/serve-2",
            by_queue="cq-prod",
            reason="InCohortReclamation",
            message="Preempted to accommodate a workload in the cohort",
            gpus=6,
            priority=500,
            by_priority=10_000,
            lost_gpu_seconds=10_440.0,
            cost=6.41,
        ),
        HistoryEvent(
            time=NOW - 12 * MINUTE,
            what=HistoryEventKind.PENDING,
            workload="research/rlhf-2",
            queue="cq-research",
            reason="NoFit",
            message="couldn't assign flavors to pod set main",
            gpus=6,
        ),
    ]


def snapshot_of(objects: Iterable[Object], lines: Sequence[HistoryEvent] = ()) -> Snapshot:
    """A Snapshot of these objects, taken at NOW."""
    state = ClusterState(NOW)
    for thing in objects:
        state.apply(Applied(NOW, thing))
    for happened in lines:
        state.apply(happened)
    return state.freeze()


def recorded(objects: Iterable[Object], lines: Sequence[HistoryEvent] = ()) -> Console:
    """A console that plays a recording of these objects up to NOW, and stays there until it is ticked."""
    events: list[Event] = [*sorted(lines, key=lambda row: row.time), *(Applied(NOW, thing) for thing in objects)]
    console = Console(
        RecordedBackend(events, speed=60.0), about=ConsoleStatus(mode=ConsoleMode.REPLAY, source="test", engines=KUEUE)
    )
    console.tick((NOW - events[0].time) / 60e6)
    return console


def simulated(objects: Iterable[Object], *, speed: float = 1.0, latencies: Latencies | None = None) -> Console:
    """A console on the embedded simulator that begins with these objects at NOW; tests tick it by hand."""
    simulation = Simulation.from_objects(objects, policy=SimPolicy(latencies=latencies), seed=7, start=NOW)
    console = Console(SimulatedBackend(simulation, speed=speed), about=ConsoleStatus(source="test", engines=KUEUE))
    console.tick(0.0)
    return console


def a_job(name: str, gpus: int, namespace: str, priority_class: str) -> Job:
    """A job of one pod that waits to be admitted."""
    return Job(
        namespace=namespace,
        name=name,
        created=NOW,
        queue=f"lq-{namespace}",
        workload_priority_class=priority_class,
        pod_sets=(pod_set(gpus),),
        suspended=True,
        duration=4 * HOUR,
        phase=JobPhase.SUSPENDED,
    )


def org_jobs() -> list[Object]:
    """The same organisation before anything runs; its jobs are submitted one after the other by `busy_org`."""
    kinds = (Job, Workload, Pod)
    return [thing for thing in org_cohort() if not isinstance(thing, kinds)]


def busy_org(latencies: Latencies | None = None) -> Console:
    """The simulated organisation: llm-ft 4, embed 2 and rlhf 6 in research (it borrows 4), serve 8 in prod."""
    console = simulated(org_jobs(), latencies=latencies)
    for name, gpus, namespace, rank in (
        ("llm-ft", 4, "research", "research-default"),
        ("embed", 2, "research", "research-default"),
        ("serve", 8, "prod", "production"),
        ("rlhf", 6, "research", "research-default"),
    ):
        console.submit(Submit((a_job(name, gpus, namespace, rank),)))
        for _ in range(10):
            console.tick(1.0)
    return console
