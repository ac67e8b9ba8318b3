"""Trials of changes that get pending pods scheduled, in a fork of the simulation that runs for one minute.

A minute is enough for evicted pods to terminate and for another scheduling attempt. If the pods start within it without
a change, no change is suggested. The number of trials is limited, not their time, so that results are the same on every
machine. `placement_check` tries whether the pods of a workload that a change admits are scheduled, as admission does
not check nodes. A PodDisruptionBudget can delay what Volcano schedules, as its plugin `pdb` never preempts protected
pods. It does not delay what kube-scheduler schedules, which preempts them if there are no other victims, nor what Kueue
admits, which suspends jobs without checking budgets.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.index.demand import pod_gpus
from gpuconsole.insight.index.queues import open_checks
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.shortage import PendingExplanation, Remedy, first_of
from gpuconsole.insight.pending.unscheduled_pods import explain_pods
from gpuconsole.insight.unblock.changes import (
    GROUP,
    AddNodesStep,
    AskLess,
    DropSelector,
    FewerPods,
    LoosenBudget,
    LowerGang,
    Resume,
    Step,
    Steps,
    TriedEnough,
    change_commands,
    covered,
    endings,
    in_words,
    minimal_changes,
    new_tolerations,
    size,
)
from gpuconsole.model import cooperative
from gpuconsole.model.clock import MINUTE, Span, Time, format_seconds
from gpuconsole.model.cluster import Node, Pod, PodDisruptionBudget, PodPhase
from gpuconsole.model.devices import accelerators, is_counted
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.queue_names import group_key
from gpuconsole.scheduling.volcano.jobs.states import tasks_of

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

HORIZON: Span = MINUTE
MOST_TRIES = 150


class ScheduledPods(Struct, frozen=True):
    """How many pods of a job, a gang or a lone pod are scheduled."""

    placed: int
    needed: int
    """Number of pods that have to start together; 0 if each starts independently."""
    total: int

    @property
    def started(self) -> bool:
        """True if as many are scheduled as have to start together; without a gang all of them."""
        return self.total > 0 and self.placed >= (self.needed or self.total)


class PlacementTrial:
    """Tries whether changes would get pending pods scheduled, in forks; counts the trials. Mutable."""

    def __init__(self, simulation: "Simulation", key: str, most_tries: int = MOST_TRIES) -> None:
        self.key = key
        self.tries = 0
        self._base = simulation.forecast_fork((key,))
        self._base.drain()
        self._most_tries = most_tries
        self.snapshot = self._base.snapshot()
        self.pods = pods_of(self.snapshot, key)
        self.job = self.snapshot.jobs.get(key)
        self.stand = _stand(self.snapshot, key)

    def works(self, steps: Sequence[Step]) -> bool:
        """True if the work has started a minute after all these changes. Raises TriedEnough."""
        if self.tries >= self._most_tries:
            raise TriedEnough
        self.tries += 1
        fork = self._base.fork()
        for command in change_commands(self.snapshot, self.key, steps):
            fork.submit(command)
        fork.advance(fork.now + HORIZON)
        return self._has_started(fork.snapshot())

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if the work has not started a minute after all these changes. Raises TriedEnough."""
        return not self.works(steps)

    def least(self, steps: Sequence[Step]) -> Steps:
        """Return the changes, each as small as still unblocks the pods; see `minimal_changes`."""
        return minimal_changes(self, steps)

    def _has_started(self, later: Snapshot) -> bool:
        """True if the gang, or without a gang all pods, started since; ended pods count as started."""
        job = later.jobs.get(self.key)
        if job is None and self.job is not None:
            return False
        if job is not None and job.ended:
            return job.phase is JobPhase.SUCCEEDED
        stand = _stand(later, self.key)
        return stand.started and (not self.stand.started or stand.placed == stand.total)


def pods_of(snapshot: Snapshot, key: str) -> list[Pod]:
    """Return the pods of a workload, a job or a lone pod, and the rest of their gang."""
    own = [pod for pod in snapshot.pods.all() if key in (pod.workload, pod.job, pod.key) and not pod.deleted]
    groups = {group_key(pod) for pod in own} - {""}
    if not groups:
        return own
    keys = {pod.key for pod in own}
    return [pod for pod in snapshot.pods.all() if not pod.deleted and (pod.key in keys or group_key(pod) in groups)]


def gang_of(snapshot: Snapshot, pods: Sequence[Pod]) -> PodGroup | KaiPodGroup | None:
    """Return the PodGroup that the pods name; None without one."""
    keys = dict.fromkeys(group_key(pod) for pod in pods)
    found = (snapshot.pod_groups.get(key) or snapshot.kai_pod_groups.get(key) for key in keys if key)
    return next((group for group in found if group is not None), None)


def _stand(snapshot: Snapshot, key: str) -> ScheduledPods:
    pods, job = pods_of(snapshot, key), snapshot.jobs.get(key)
    group = gang_of(snapshot, pods)
    if job is not None and job.volcano is not None:
        needed = job.volcano.min_available
    elif group is not None:
        needed = group.min_member
    else:
        needed = max((pod.gang_size or len(pods) for pod in pods if pod.gang), default=0)
    return ScheduledPods(sum(bool(pod.node) for pod in pods), needed, len(pods))


MOST_ENDS = 12
MOST_TOGETHER = 6
MOST_NODES = 8
MOST_KINDS = 4
"""Maximum number of instance types that are tried."""
MOST_CORDONED = 8
_GANG_FIELDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "VolcanoJob")
"""Job kinds that have their own minimum of pods."""


def ends(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield other work whose end lets the pods start: up to three alone, the smallest first; else a few together."""
    candidates = list(islice(_candidates(trial), MOST_ENDS))
    yield from endings(trial, candidates, candidates[: -MOST_TOGETHER - 1 : -1])


def _candidates(trial: PlacementTrial) -> Iterator[str]:
    """Yield the work that runs on nodes, by GPUs and name, except the subject itself."""
    held: dict[str, int] = {}
    own = {pod.key for pod in trial.pods}
    for pod in trial.snapshot.pods.all():
        if pod.node and not pod.done and not pod.deleted and pod.key not in own:
            owner = pod.workload or pod.job or pod.key
            held[owner] = held.get(owner, 0) + pod_gpus(pod.template)
    if any(held.values()) and any(pod_gpus(p.template) for p in trial.pods or ()):
        held = {owner: count for owner, count in held.items() if count}
    return iter(sorted(held, key=lambda owner: (held[owner], owner)))


def gangs(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield a lower minimum of pods with which the gang starts, if its job or PodGroup has a field for it."""
    needed = trial.stand.needed
    if needed < 2 or trial.stand.started:
        return
    group = gang_of(trial.snapshot, trial.pods)
    if trial.job is not None and trial.job.kind in _GANG_FIELDS:
        gang, field = trial.job.name, "minAvailable"
    elif group is not None:
        gang, field = f"{GROUP}{group.key}", "minMember"
    else:
        return
    yield trial.least((LowerGang(gang=gang, field=field, count=1, was=needed),))


def smaller(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield fewer pods of the largest pod set, or a smaller request of each pod; for jobs without a Workload."""
    if not _free(trial) or trial.job is None:
        return
    largest = max(trial.job.pod_sets, key=lambda p: (accelerators(p.requests), sum(p.requests.values())))
    if largest.count > 1 and not _partitioned(trial.job, largest.name):
        yield trial.least((FewerPods(pod_set=largest.name, count=1, was=largest.count),))
    for resource, amount in largest.template.requests.items():
        if amount > 1 and (is_counted(resource) or not accelerators(largest.requests)):
            yield trial.least((AskLess(pod_set=largest.name, resource=resource, amount=1, was=amount),))


def _partitioned(job: Job, pod_set: str) -> bool:
    """True for a task of a Volcano Job whose replicas are fixed by its partitions."""
    return any(task.name == pod_set and task.partition is not None for task in tasks_of(job))


def nodes(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield the fewest additional nodes that let the pods start, of the instance type that needs fewest."""
    shapes: dict[object, str] = {}
    for node in trial.snapshot.nodes.all():
        # A copy of a cordoned node would join uncordoned.
        if node.ready:
            shapes.setdefault(_shape(node), node.name)
    best: Steps = ()
    for like in islice(shapes.values(), MOST_KINDS):
        most = size(best[0]) - 1 if best else MOST_NODES
        best = (trial.least((AddNodesStep(flavor="", like=like, count=most),)) if most else ()) or best
        yield ()
    yield best


def _shape(node: Node) -> object:
    labels = tuple(sorted(pair for pair in node.labels.items() if pair[0] != HOSTNAME))
    return labels, tuple(sorted(node.allocatable.items())), node.taints


def cordoned(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield the first cordoned node that lets the pods start when it is uncordoned."""
    shut = (node.name for node in trial.snapshot.nodes.all() if node.unschedulable and node.ready)
    for name in islice(shut, MOST_CORDONED):
        steps = (Resume(kind="Node", name=name),)
        if trial.works(steps):
            yield steps
            return
        yield ()


def suiting(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield tolerations to add and selector labels to remove with which the pods match nodes of an instance type."""
    if not _free(trial) or trial.job is None:
        return
    seen: set[Steps] = set()
    for node in trial.snapshot.nodes.all():
        steps: list[Step] = []
        for pod_set in trial.job.pod_sets:
            steps += new_tolerations(pod_set, node.taints)
            steps += [
                DropSelector(pod_set=pod_set.name, label=label)
                for label, value in pod_set.template.node_selector.items()
                if node.labels.get(label) != value
            ]
        if steps and tuple(steps) not in seen and len(seen) < MOST_KINDS:
            seen.add(tuple(steps))
            yield trial.least(steps)


def budgets(trial: PlacementTrial) -> Iterator[Steps]:
    """Yield disruption budgets to loosen, for schedulers that respect budgets when they preempt."""
    for budget in trial.snapshot.pod_disruption_budgets.all():
        pods = covered(trial.snapshot, budget)
        if any(pod.node for pod in pods):
            yield trial.least((LoosenBudget(budget=budget.key, by=len(pods)),))


def protected(trial: PlacementTrial) -> Steps:
    """Return the loosening of the disruption budget that blocks the work, as little as is enough; else empty."""
    try:
        if not any(True for _ in trial.snapshot.pod_disruption_budgets.all()) or trial.works(()):
            return ()
        return next(filter(None, budgets(trial)), ())
    except TriedEnough:
        return ()


def _free(trial: PlacementTrial) -> bool:
    """True for a job that may be changed: none of its pods runs, and it has no Workload."""
    return trial.stand.placed == 0 and not any(pod.workload for pod in trial.pods)


class PlacementStatus(StrEnum):
    """Whether the pods of a workload are scheduled after a change that admits it."""

    FOUND = "found"
    """All pods are scheduled, or have ended."""
    NONE = "none"
    """It is admitted, but some of its pods are not scheduled."""
    EVICTED = "evicted"
    """It is admitted, and evicted again within the minute of the trial."""
    CHECKS = "checks"
    """It has reserved quota, but its admission checks or its topology assignment are pending."""
    UNSEEN = "unseen"
    """It has no pods within that minute: victims terminate too slowly, or it runs in another cluster."""
    UNTRIED = "untried"
    """No trial is possible: there is no simulation, or no node is known."""


class PlacementResult(Struct, frozen=True):
    """Whether the pods are scheduled, with a text of what they lack or what is pending."""

    nodes: PlacementStatus
    text: str = ""


UNTRIED = PlacementResult(PlacementStatus.UNTRIED)
CheckPlacement = Callable[[Steps], cooperative.Steps[PlacementResult]]
"""Function from changes to a trial that returns whether the pods are scheduled then; closing it ends the trial."""


def untried(_: Steps) -> cooperative.Steps[PlacementResult]:
    """Return the status UNTRIED, in place of a trial."""
    yield from ()
    return UNTRIED


def placement_check(simulating: "Callable[[], Simulation] | None", key: str) -> CheckPlacement:
    """Return a function that tries whether the pods of workload `key` are scheduled after changes that admit it.

    The simulation is made at its first call.
    """
    base: list[Simulation] = []

    def land(steps: Steps) -> cooperative.Steps[PlacementResult]:
        if simulating is None:
            return (yield from untried(steps))
        if not base:
            base.append(simulating().forecast_fork((key,)))
            base[0].drain()
        return (yield from _landed(base[0].fork(), key, steps))

    return land


def _landed(fork: "Simulation", key: str, steps: Steps) -> cooperative.Steps[PlacementResult]:
    before = fork.snapshot()
    workload = before.workloads.get(key)
    if not len(before.nodes) or workload is None:
        return UNTRIED
    # All changes at once, so that no other workload is admitted between them.
    fork.schedule_commands(fork.now, *change_commands(before, key, steps))
    end = fork.now + HORIZON
    while (due := fork.next_time) is not None and due <= end:
        fork.advance(due)
        yield
    fork.advance(end)
    return _evicted(fork, key, before.time) or _seen(fork.snapshot(), key)


def _evicted(fork: "Simulation", key: str, start: Time) -> PlacementResult | None:
    """Return the outcome of a workload that was evicted again; None if it was not."""
    now = fork.workload(key)
    lost = [
        e
        for e in fork.drain()
        if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.EVICTED and e.workload == key
    ]
    if not lost or (now is not None and now.reserved and not now.is_true("Evicted")):
        return None
    by = f" by {lost[-1].by}" if lost[-1].by else ""
    return PlacementResult(PlacementStatus.EVICTED, f"evicted again at +{format_seconds(lost[-1].time - start)}{by}")


def _seen(later: Snapshot, key: str) -> PlacementResult:
    workload = later.workloads.get(key)
    if workload is not None and workload.finished:
        return PlacementResult(PlacementStatus.FOUND)
    if workload is not None and workload.reserved and not workload.admitted:
        return PlacementResult(PlacementStatus.CHECKS, _open(workload))
    pods = [pod for pod in later.pods.all() if pod.workload == key and not pod.deleted]
    if workload is None or not workload.admitted or not pods:
        return PlacementResult(PlacementStatus.UNSEEN)
    explanation = explain_pods(later, key, pods)
    if explanation is None:
        return PlacementResult(PlacementStatus.FOUND)
    short = sum(not pod.node and not pod.done for pod in pods)
    why = f": {explanation.lines[0]}" if explanation.lines else ""
    return PlacementResult(PlacementStatus.NONE, f"{short} of {len(pods)} pods unschedulable{why}")


def _open(workload: Workload) -> str:
    """Describe what a workload with reserved quota waits for."""
    names = [f"{check.name} is {check.state}" for check in open_checks(workload)]
    return ", ".join(names) or "its topology assignment is pending"


MOST_PODS = 6


def kept_by_budget(simulation: "Simulation", explanation: PendingExplanation) -> PendingExplanation | None:
    """Explain that pods are pending because of a disruption budget; None if that is not the reason."""
    trial = PlacementTrial(simulation, explanation.subject)
    for step in protected(trial):
        if isinstance(step, LoosenBudget):
            budget = trial.snapshot.pod_disruption_budgets[step.budget]
            pods = covered(trial.snapshot, budget)
            may = budget.allowed(len(pods), sum(map(_healthy, pods)))
            headline = (
                f"Preemption is blocked by PodDisruptionBudget {budget.key}:"
                f" {may} of its {len(pods)} pods may be evicted."
            )
            return replace(
                explanation,
                code=PendingReason.DISRUPTION_BUDGET,
                headline=headline,
                lines=(*_arithmetic(budget, pods, may), *explanation.lines),
                remedies=(Remedy(True, in_words((step,), trial.snapshot)),),
            )
    return None


def _arithmetic(budget: PodDisruptionBudget, pods: list[Pod], may: int) -> Iterator[str]:
    healthy = sum(map(_healthy, pods))
    rule = (
        f"maxUnavailable {budget.max_unavailable}" if budget.max_unavailable else f"minAvailable {budget.min_available}"
    )
    yield f"PodDisruptionBudget {budget.key}: {rule}; {len(pods)} pods, {healthy} healthy → {may} may be evicted"
    yield f"protects {first_of([f'{pod.key} on {pod.node}' for pod in pods if pod.node], MOST_PODS)}"


def _healthy(pod: Pod) -> bool:
    return pod.phase is PodPhase.RUNNING and not pod.deleted and not pod.unready


def keeping_drained(snapshot: Snapshot, key: str) -> Iterator[str]:
    """Describe the disruption budgets that keep the pods of cordoned nodes from being evicted."""
    pods = pods_of(snapshot, key)
    shut = [pod for pod in pods if pod.node and (node := snapshot.nodes.get(pod.node)) and node.unschedulable]
    for budget in snapshot.pod_disruption_budgets.all() if shut else ():
        known = covered(snapshot, budget)
        kept = dict.fromkeys(pod.node for pod in shut if pod in known)
        if kept and not budget.allowed(len(known), sum(map(_healthy, known))):
            yield f"cordoned: {', '.join(kept)}; PodDisruptionBudget {budget.key} allows no eviction"
