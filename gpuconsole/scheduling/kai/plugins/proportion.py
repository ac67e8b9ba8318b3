"""proportion plugin: fair shares of queues, and the rules based on them (KAI 0.13 plugins/proportion)."""

from collections.abc import Sequence

from gpuconsole.scheduling.kai import messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.queues import QueueState
from gpuconsole.scheduling.kai.api.statuses import ALLOCATED, KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import PodInfo, Sort
from gpuconsole.scheduling.kai.conf import BadArgument, KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.capacity import over_capacity, over_quota, requested_by, requested_on
from gpuconsole.scheduling.kai.fair_share.quantities import GPU, Quantities, of_amounts, of_request
from gpuconsole.scheduling.kai.fair_share.queue_order import Contender, compare
from gpuconsole.scheduling.kai.fair_share.reclaimable import Reclaimer, ancestry, may_reclaim, may_take_from
from gpuconsole.scheduling.kai.fair_share.shares import QueueShares
from gpuconsole.scheduling.kai.fair_share.tree import divide_tree, shares_of, total_of
from gpuconsole.scheduling.kai.fair_share.victims import losses_by_queue
from gpuconsole.scheduling.kai.functions import SolverScenario
from gpuconsole.scheduling.kai.session import KaiSession


class Proportion:
    """Registers the rules, and tracks the allocation and fair share of every queue. Mutates."""

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
