"""proportion plugin: fair shares of queues, and the rules based on them (KAI 0.13 plugins/proportion).

`compare_queues` orders two queues by which is served first (proportion/queue_order). `losses_by_queue` adds up what
queues lose by a scenario's victims: tasks above a gang's minimum one by one, those within it together.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import (
    ACTIVE_ALLOCATED,
    ALLOCATED,
    GpuRequestType,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
)
from gpuconsole.scheduling.kai.config import InvalidArgument, KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.division import (
    GPU,
    RESOURCES,
    Quantities,
    QueueShares,
    QueueState,
    add,
    is_less,
    is_within,
    new_queue_shares,
    quantities_of,
    requested_quantities,
    set_fair_shares_of_tree,
    subtract,
    total_resources,
)
from gpuconsole.scheduling.kai.fair_share.reclaimable import (
    Reclaimer,
    find_exceeded_capacity,
    find_exceeded_quota,
    may_reclaim,
    may_reclaim_victims,
    queue_and_ancestors,
    requested_by_tasks,
    requested_on,
)
from gpuconsole.scheduling.kai.functions import SolverScenario, VictimJob
from gpuconsole.scheduling.kai.session import KaiSession


class ComparedQueue(Struct, frozen=True):
    """A queue that is compared with others, with the request of its next job and the jobs that would be its victims."""

    queue: QueueShares
    request: Quantities
    victims: Sequence[PodGroupInfo] = ()

    @property
    def allocated_with_job(self) -> Quantities:
        return add(self.queue.allocated, self.request)

    @property
    def is_over_fair_share(self) -> bool:
        return is_less(self.queue.fair, self.queue.allocated)

    @property
    def is_within_quota(self) -> bool:
        return is_within(self.allocated_with_job, self.queue.deserved)

    @property
    def lacks_share(self) -> bool:
        """True if the queue would hold, with the job, a resource of which it has no share."""
        held, allowed = self.allocated_with_job, self.queue.allocatable
        return any(allowed[name] == 0 and held[name] > 0 for name in RESOURCES)

    def dominant_share(self, total: Quantities) -> float:
        """The queue's dominant share with the job and without the victims."""
        extra = self.request
        for victim in self.victims:
            extra = subtract(extra, quantities_of(victim.allocated))
        return self.queue.dominant(total, extra)


def compare_queues(left: ComparedQueue, right: ComparedQueue, total: Quantities) -> int:
    """-1 if the left queue comes first, else 1: the first rule in which they differ decides.

    Not above the fair share; within quota with the job; higher priority; not without a share; the smaller dominant
    share with the job, then without; the smaller allocatable share; older.
    """
    for mine, theirs in (
        (left.is_over_fair_share, right.is_over_fair_share),
        (not left.is_within_quota, not right.is_within_quota),
        (-left.queue.priority, -right.queue.priority),
        (left.lacks_share, right.lacks_share),
        (left.dominant_share(total), right.dominant_share(total)),
        (left.queue.dominant(total), right.queue.dominant(total)),
    ):
        if mine != theirs:
            return -1 if mine < theirs else 1
    one, other = left.queue.allocatable, right.queue.allocatable
    if is_within(one, other) != is_within(other, one):
        return -1 if is_within(one, other) else 1
    return -1 if left.queue.created < right.queue.created else 1


def losses_by_queue(victims: Iterable[VictimJob], *, ignore_placed: bool) -> dict[str, list[ResourceAmounts]]:
    """What each queue loses by the victims, in order; with `ignore_placed`, tasks placed again are not lost."""
    losses: dict[str, list[ResourceAmounts]] = {}
    for victim in victims:
        found = list(victim_losses(victim, ignore_placed=ignore_placed))
        if found:
            losses.setdefault(victim.job.queue, []).extend(found)
    return losses


def victim_losses(victim: VictimJob, *, ignore_placed: bool) -> Iterator[ResourceAmounts]:
    """What a victim's queue loses: each task above a pod set's minimum, then all others in one sum."""
    by_set: dict[str, list[PodInfo]] = {}
    for task in victim.tasks:
        by_set.setdefault(task.set_name, []).append(task)
    core: list[PodInfo] = []
    for name, tasks in by_set.items():
        minimum = victim.job.pod_sets[name].minimum
        core += tasks[:minimum]
        for task in tasks[minimum:]:
            yield from _lost_resources([task], ignore_placed)
    yield from _lost_resources(core, ignore_placed)


def _lost_resources(tasks: list[PodInfo], ignore_placed: bool) -> Iterator[ResourceAmounts]:
    lost = [task for task in tasks if not (ignore_placed and task.status in ACTIVE_ALLOCATED)]
    if lost:
        total = ResourceAmounts()
        for task in lost:
            total.add_request(task.accepted_request)
        yield total


class Proportion:
    """proportion plugin: tracks the allocation and fair share of every queue, and registers the rules. Mutates."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self.k_value = max(0.0, _parse_argument(arguments, "kValue"))
        """Strength of the correction of over-quota weights by past usage; 0 ignores it."""
        self.saturation_multiplier = max(1.0, _parse_argument(arguments, "relcaimerSaturationMultiplier"))
        self.shares: dict[str, QueueShares] = {}
        self.total: Quantities = {}
        self._saved_shares: dict[str, QueueShares] = {}

    def open(self, session: KaiSession) -> None:
        self._session = session
        self.total = total_resources(session.nodes.values(), session.parameters)
        self.shares = {uid: new_queue_shares(queue) for uid, queue in session.queues.items()}
        for job in session.jobs.values():
            self._count_job(job)
        set_fair_shares_of_tree(self.total, self.k_value, self.shares)
        functions = session.functions
        functions.queue_order.append(self._compare)
        functions.may_reclaim.append(lambda job: may_reclaim(self.shares, self._reclaimer(job)))
        functions.reclaim_scenarios.append(self._allows_scenario)
        functions.on_solution_start.append(self._save_allocations)
        functions.over_quota.append(lambda job, tasks: find_exceeded_quota(self.shares, job, requested_by_tasks(tasks)))
        functions.over_capacity.append(
            lambda job, tasks: find_exceeded_capacity(self.shares, job, requested_by_tasks(tasks))
        )
        functions.over_capacity_on_node.append(
            lambda task, job, node: find_exceeded_capacity(self.shares, job, requested_on(task, node))
        )
        functions.on_allocate.append(lambda task: self._update_allocation(task, 1))
        functions.on_deallocate.append(lambda task: self._update_allocation(task, -1))
        functions.queue_use.append(self._usage_text)

    def _count_job(self, job: PodGroupInfo) -> None:
        """Add the job's allocation and request to its queue and the queues above."""
        for status, tasks in job.by_status.items():
            for task in tasks.values():
                if status in ALLOCATED:
                    held = requested_quantities(task.accepted_request)
                    self._add_request(job, held)
                    for queue in queue_and_ancestors(self.shares, job.queue):
                        queue.add_allocation(held, preemptible=job.preemptible)
                elif status is KaiPodStatus.PENDING:
                    self._add_request(job, self._requested(task))

    def _requested(self, task: PodInfo) -> Quantities:
        asked = requested_quantities(task.request)
        if task.gpu_request_type is GpuRequestType.MEMORY:
            asked[GPU] += task.request.count * (task.request.gpu_memory / self._session.least_gpu_memory)
        return asked

    def _add_request(self, job: PodGroupInfo, asked: Quantities) -> None:
        for queue in queue_and_ancestors(self.shares, job.queue):
            for name, amount in asked.items():
                queue.by_resource[name].requested += amount

    def _update_allocation(self, task: PodInfo, sign: int) -> None:
        job = self._session.jobs[task.job]
        held = requested_quantities(task.accepted_request)
        for queue in queue_and_ancestors(self.shares, job.queue):
            queue.add_allocation(held, preemptible=job.preemptible, sign=sign)

    def _save_allocations(self) -> None:
        """Save the queues' allocations before the trials for a reclaiming job."""
        self._saved_shares = {uid: shares.copy() for uid, shares in self.shares.items()}

    def _reclaimer(self, job: PodGroupInfo) -> Reclaimer:
        return Reclaimer(job.queue, self._session.request_to_allocate(job), job.preemptible)

    def _allows_scenario(self, scenario: SolverScenario) -> bool:
        losses = losses_by_queue(
            scenario.victims().values(), ignore_placed=self._session.parameters.consolidating_reclaim
        )
        return may_reclaim_victims(
            self._saved_shares, self._reclaimer(scenario.preemptor), losses, self.saturation_multiplier
        )

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
        needs = self._session.request_to_allocate
        return compare_queues(
            ComparedQueue(left, quantities_of(needs(job)), victims),
            ComparedQueue(right, quantities_of(needs(other_job)), other_victims),
            self.total,
        )

    def _usage_text(self, queue: QueueState) -> str:
        shares = self.shares[queue.uid]
        return messages.queue_usage_message(queue.name, shares.allocated, shares.deserved, shares.fair, queue.priority)


def _parse_argument(arguments: KaiPluginArguments, name: str) -> float:
    try:
        return arguments.number(name, 1.0)
    except InvalidArgument:
        return 1.0
