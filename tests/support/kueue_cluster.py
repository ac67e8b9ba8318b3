"""A small cluster for the tests of admission: short names for objects, and a world that carries decisions out."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import AdmissionDecision, Admit, Preempt, Refuse
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import (
    BorrowWithinCohort,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import DEFAULT, KueueConfig
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator

GPU = "nvidia.com/gpu"
NEVER, LOWER, ANY = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY
NEWER_EQUAL = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
STRICT, BEST_EFFORT = QueueingStrategy.STRICT_FIFO, QueueingStrategy.BEST_EFFORT_FIFO
EVERYTHING = LabelSelector()
NO_BORROWING = BorrowWithinCohort()
DEFAULT_FUNGIBILITY = FlavorFungibility()
ANY_NODE = PodTemplate()


def quota(nominal: int, borrow: int | None = None, lend: int | None = None) -> Quota:
    return Quota(nominal, borrow, lend)


def group(flavors: Mapping[str, Quota | int], resource: str = GPU) -> ResourceGroup:
    """One resource in several flavors."""
    amounts = {name: q if isinstance(q, Quota) else Quota(q) for name, q in flavors.items()}
    return ResourceGroup((resource,), tuple(FlavorQuotas(name, {resource: q}) for name, q in amounts.items()))


def queue(
    name: str,
    quotas: Quota | int | Mapping[str, Quota | int] = 0,
    *,
    cohort: str = "",
    strategy: QueueingStrategy = BEST_EFFORT,
    within: PreemptionPolicy = NEVER,
    reclaim: PreemptionPolicy = NEVER,
    borrow: BorrowWithinCohort = NO_BORROWING,
    fungibility: FlavorFungibility = DEFAULT_FUNGIBILITY,
    weight: float = 1.0,
    selector: LabelSelector | None = EVERYTHING,
    groups: tuple[ResourceGroup, ...] = (),
) -> ClusterQueue:
    """A ClusterQueue; plain numbers are GPUs of flavor `f`."""
    flavors = quotas if isinstance(quotas, Mapping) else {"f": quotas}
    return ClusterQueue(
        name=name,
        cohort=cohort,
        namespace_selector=selector,
        queueing_strategy=strategy,
        resource_groups=groups or (group(flavors),),
        preemption=ClusterQueuePreemption(within, reclaim, borrow),
        fungibility=fungibility,
        fair_weight=weight,
    )


def cohort(name: str, quotas: Quota | int | None = None, *, parent: str = "", weight: float = 1.0) -> Cohort:
    groups = () if quotas is None else (group({"f": quotas}),)
    return Cohort(name=name, parent=parent, resource_groups=groups, fair_weight=weight)


def pods(
    count: int = 1,
    gpus: int = 1,
    *,
    name: str = "main",
    least: int | None = None,
    topology: TopologyRequest | None = None,
    template: PodTemplate = ANY_NODE,
    **requests: int,
) -> PodSet:
    wanted = {GPU: gpus, **requests} if gpus else requests
    containers = (Container(requests=wanted),)
    template = PodTemplate(
        containers=containers,
        node_selector=template.node_selector,
        affinity=template.affinity,
        tolerations=template.tolerations,
        preferred=template.preferred,
    )
    return PodSet(name=name, count=count, min_count=least, template=template, topology=topology)


def workload(
    name: str, queue: str, gpus: int = 1, *, priority: int = 0, created: int = 0, pod_sets: Iterable[PodSet] = ()
) -> Workload:
    """One pod with that many GPUs, unless pod sets are given; `created` in seconds. Its uid is `uid-NAME`."""
    return Workload(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        created=created * SECOND,
        queue=queue,
        priority=priority,
        pod_sets=tuple(pod_sets) or (pods(1, gpus),),
    )


class World:
    """An admission simulator; every ClusterQueue `q` has a LocalQueue `q` in namespace `team`. Mutates."""

    def __init__(
        self,
        *things: Object,
        config: KueueConfig = DEFAULT,
        flavors: Iterable[str] = ("f",),
        victims_keep_quota: bool = False,
    ) -> None:
        self.simulator = AdmissionSimulator(
            KueueSession(config), 1000 * SECOND, victims_keep_quota=victims_keep_quota, report=ReportRefusals.EVERY
        )
        self.apply(Namespace(name="team"))
        named = {thing.name for thing in things if isinstance(thing, ResourceFlavor)}
        self.apply(*(ResourceFlavor(name=name) for name in flavors if name not in named), *things)
        self.apply(
            *(
                LocalQueue(namespace="team", name=q.name, cluster_queue=q.name)
                for q in things
                if isinstance(q, ClusterQueue)
            )
        )
        self.session.requeue_inadmissible(self.now)

    @property
    def session(self) -> KueueSession:
        return self.simulator.session

    @session.setter
    def session(self, session: KueueSession) -> None:
        self.simulator.session = session

    @property
    def now(self) -> Time:
        return self.simulator.now

    @now.setter
    def now(self, now: Time) -> None:
        self.simulator.now = now

    @property
    def workloads(self) -> dict[str, Workload]:
        """The workloads by name."""
        return {workload.name: workload for workload in self.simulator.workloads.all()}

    def apply(self, *things: Object) -> None:
        for thing in things:
            self.simulator.apply(thing)

    def cycle(self) -> list[AdmissionDecision]:
        """Run one cycle a second later, and apply its decisions."""
        return self.simulator.run_cycle()

    def release(self) -> None:
        """Release the quota of all victims that still hold it."""
        for victim in list(self.workloads.values()):
            if victim.reserved and victim.is_true(conditions.EVICTED) and not victim.finished:
                self.apply(conditions.release_quota(victim, self.now))
        self.simulator.requeue_inadmissible()

    def settle(self, cycles: int = 30) -> None:
        """Run cycles until one decides nothing new."""
        for _ in range(cycles):
            if not self.session.has_heads:
                return
            self.cycle()
            if not self.session.has_progressed:
                return
        raise AssertionError("admission goes on and on")

    def run(self, *arrivals: Workload, admitted: bool = False) -> "World":
        """Let workloads arrive and settle, one after the other where `admitted` asks that each gets in."""
        for arrival in arrivals:
            self.apply(arrival)
            if admitted:
                self.settle()
                assert arrival.name in self.running, f"{arrival.name} is not admitted: {self.message(arrival.name)}"
        self.settle()
        return self

    def finish(self, name: str) -> None:
        self.simulator.finish(f"team/{name}")
        self.simulator.requeue_inadmissible()

    @property
    def running(self) -> set[str]:
        return {name for name, w in self.workloads.items() if w.admitted and not w.finished}

    def message(self, name: str) -> str:
        """What the workload was told last."""
        condition = self.workloads[name].condition("QuotaReserved")
        return condition.message if condition is not None else ""

    def waiting(self, cluster_queue: str) -> list[str]:
        """Who waits, in order; those that are parked in brackets."""
        return [
            f"({p.workload.name})" if p.inadmissible else p.workload.name
            for p in self.session.pending_workloads(cluster_queue)
        ]


def victims(decisions: Iterable[AdmissionDecision]) -> dict[str, str]:
    """Victim → rule."""
    return {d.workload.removeprefix("team/"): d.rule.value for d in decisions if isinstance(d, Preempt)}


def admitted(decisions: Iterable[AdmissionDecision]) -> list[str]:
    return [d.workload.removeprefix("team/") for d in decisions if isinstance(d, Admit)]


def refused(decisions: Iterable[AdmissionDecision]) -> dict[str, str]:
    """Workload → message."""
    return {d.workload.removeprefix("team/"): d.message for d in decisions if isinstance(d, Refuse)}
