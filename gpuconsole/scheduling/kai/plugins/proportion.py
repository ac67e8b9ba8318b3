"""proportion plugin: fair shares of queues, and the rules based on them (KAI 0.13 plugins/proportion).

`compare` orders two queues by which is served first (proportion/queue_order). `losses_by_queue` adds up what queues
lose by a scenario's victims: tasks above a gang's minimum one by one, those within it together.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.resources import ResourceAmounts
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_ALLOCATED, ALLOCATED, KaiPodStatus, PodInfo, Sort
from gpuconsole.scheduling.kai.config import BadArgument, KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.division import (
    GPU,
    RESOURCES,
    Quantities,
    QueueShares,
    QueueState,
    divide_tree,
    less,
    minus,
    of_amounts,
    of_request,
    plus,
    shares_of,
    total_of,
    within,
)
from gpuconsole.scheduling.kai.fair_share.reclaimable import (
    Reclaimer,
    ancestry,
    may_reclaim,
    may_take_from,
    over_capacity,
    over_quota,
    requested_by,
    requested_on,
)
from gpuconsole.scheduling.kai.functions import SolverScenario, VictimJob
from gpuconsole.scheduling.kai.session import KaiSession


class Contender(Struct, frozen=True):
    """A queue that is compared with others, with the request of its next job and the jobs that would be its victims."""

    queue: QueueShares
    needed: Quantities
    victims: Sequence[PodGroupInfo] = ()

    @property
    def with_job(self) -> Quantities:
        return plus(self.queue.allocated, self.needed)

    @property
    def over_fair_share(self) -> bool:
        return less(self.queue.fair, self.queue.allocated)

    @property
    def within_quota(self) -> bool:
        return within(self.with_job, self.queue.deserved)

    @property
    def without_share(self) -> bool:
        """True if it would hold a resource, with the job, of which its share is zero."""
        held, allowed = self.with_job, self.queue.allocatable
        return any(allowed[name] == 0 and held[name] > 0 for name in RESOURCES)

    def share(self, total: Quantities) -> float:
        """The queue's dominant share with the job and without the victims."""
        extra = self.needed
        for victim in self.victims:
            extra = minus(extra, of_amounts(victim.allocated))
        return self.queue.dominant(total, extra)


def compare(left: Contender, right: Contender, total: Quantities) -> int:
    """-1 if the left queue comes first, else 1: the first rule in which they differ decides.

    Not above the fair share; within quota with the job; higher priority; not without a share; the smaller dominant
    share with the job, then without; the smaller allocatable share; older.
    """
    for mine, theirs in (
        (left.over_fair_share, right.over_fair_share),
        (not left.within_quota, not right.within_quota),
        (-left.queue.priority, -right.queue.priority),
        (left.without_share, right.without_share),
        (left.share(total), right.share(total)),
        (left.queue.dominant(total), right.queue.dominant(total)),
    ):
        if mine != theirs:
            return -1 if mine < theirs else 1
    one, other = left.queue.allocatable, right.queue.allocatable
    if within(one, other) != within(other, one):
        return -1 if within(one, other) else 1
    return -1 if left.queue.created < right.queue.created else 1


def losses_by_queue(victims: Iterable[VictimJob], *, ignore_placed: bool) -> dict[str, list[ResourceAmounts]]:
    """What each queue loses by the victims, in order; with `ignore_placed`, tasks placed again are not lost."""
    losses: dict[str, list[ResourceAmounts]] = {}
    for victim in victims:
        found = list(losses_of(victim, ignore_placed=ignore_placed))
        if found:
            losses.setdefault(victim.job.queue, []).extend(found)
    return losses


def losses_of(victim: VictimJob, *, ignore_placed: bool) -> Iterator[ResourceAmounts]:
    """What a victim's queue loses: each task above a pod set's minimum, then all others in one sum."""
    by_set: dict[str, list[PodInfo]] = {}
    for task in victim.tasks:
        by_set.setdefault(task.set_name, []).append(task)
    core: list[PodInfo] = []
    for name, tasks in by_set.items():
        minimum = victim.job.pod_sets[name].minimum
        core += tasks[:minimum]
        for task in tasks[minimum:]:
            yield from _sum([task], ignore_placed)
    yield from _sum(core, ignore_placed)


def _sum(tasks: list[PodInfo], ignore_placed: bool) -> Iterator[ResourceAmounts]:
    lost = [task for task in tasks if not (ignore_placed and task.status in ACTIVE_ALLOCATED)]
    if lost:
        total = ResourceAmounts()
        for task in lost:
            total.add_request(task.accepted)
        yield total


class Proportion:
    """proportion plugin: tracks the allocation and fair share of every queue, and registers the rules. Mutates."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.k = max(0.0, _number(arguments, "kValue"))
        """Strength of the correction of over-quota weights by past usage; 0 ignores it."""
        self.multiplier = max(1.0, _number(arguments, "relcaimerSaturationMultiplier"))
        self.shares: dict[str, QueueShares] = {}
        self.total: Quantities = {}
        self._trial: dict[str, QueueShares] = {}

    def open(self, session: KaiSession) -> None:
        self._session = session
        self.total = total_of(session.nodes.values(), session.parameters)
        self.shares = {uid: shares_of(queue) for uid, queue in session.queues.items()}
        for job in session.jobs.values():
            self._count(job)
        divide_tree(self.total, self.k, self.shares)
        functions = session.functions
        functions.queue_order.append(self._compare)
        functions.may_reclaim.append(lambda job: may_reclaim(self.shares, self._reclaimer(job)))
        functions.reclaim_scenarios.append(self._allows)
        functions.solution_starts.append(self._start)
        functions.over_quota.append(lambda job, tasks: over_quota(self.shares, job, requested_by(tasks)))
        functions.over_capacity.append(lambda job, tasks: over_capacity(self.shares, job, requested_by(tasks)))
        functions.over_capacity_on_node.append(
            lambda task, job, node: over_capacity(self.shares, job, requested_on(task, node))
        )
        functions.allocated.append(lambda task: self._shift(task, 1))
        functions.deallocated.append(lambda task: self._shift(task, -1))
        functions.queue_use.append(self._use)

    def _count(self, job: PodGroupInfo) -> None:
        """Add the job's allocation and request to its queue and the queues above."""
        for status, tasks in job.by_status.items():
            for task in tasks.values():
                if status in ALLOCATED:
                    held = of_request(task.accepted)
                    self._ask(job, held)
                    for queue in ancestry(self.shares, job.queue):
                        queue.take(held, preemptible=job.preemptible)
                elif status is KaiPodStatus.PENDING:
                    self._ask(job, self._asked(task))

    def _asked(self, task: PodInfo) -> Quantities:
        asked = of_request(task.request)
        if task.sort is Sort.MEMORY:
            asked[GPU] += task.request.count * (task.request.gpu_memory / self._session.least_gpu_memory)
        return asked

    def _ask(self, job: PodGroupInfo, asked: Quantities) -> None:
        for queue in ancestry(self.shares, job.queue):
            for name, amount in asked.items():
                queue.of[name].requested += amount

    def _shift(self, task: PodInfo, sign: int) -> None:
        job = self._session.jobs[task.job]
        held = of_request(task.accepted)
        for queue in ancestry(self.shares, job.queue):
            queue.take(held, preemptible=job.preemptible, sign=sign)

    def _start(self) -> None:
        """Save the queues' allocations before the trials for a reclaiming job."""
        self._trial = {uid: shares.clone() for uid, shares in self.shares.items()}

    def _reclaimer(self, job: PodGroupInfo) -> Reclaimer:
        return Reclaimer(job.queue, self._session.needs(job), job.preemptible)

    def _allows(self, scenario: SolverScenario) -> bool:
        losses = losses_by_queue(
            scenario.victims().values(), ignore_placed=self._session.parameters.consolidating_reclaim
        )
        return may_take_from(self._trial, self._reclaimer(scenario.preemptor), losses, self.multiplier)

    def _compare(
        self,
        one: QueueState,
        other: QueueState,
        job: PodGroupInfo | None,
        other_job: PodGroupInfo | None,
        victims: Sequence[PodGroupInfo],
        other_victims: Sequence[PodGroupInfo],
    ) -> int:
        left, right = self.shares.get(one.uid), self.shares.get(other.uid)
        if left is None or right is None:
            return 1 if left is None else -1
        needs = self._session.needs
        return compare(
            Contender(left, of_amounts(needs(job)), victims),
            Contender(right, of_amounts(needs(other_job)), other_victims),
            self.total,
        )

    def _use(self, queue: QueueState) -> str:
        shares = self.shares[queue.uid]
        return messages.queue_use(queue.name, shares.allocated, shares.deserved, shares.fair, queue.priority)


def _number(arguments: KaiPluginArguments, name: str) -> float:
    try:
        return arguments.number(name, 1.0)
    except BadArgument:
        return 1.0
