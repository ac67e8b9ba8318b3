"""gangpreempt and gangreclaim actions: evict bundles of victims so that a whole gang fits one domain.

Volcano 1.15 actions/gangpreempt, gangreclaim and utils. Bundles are added one by one until the gang fits; its sub-jobs
are then nominated to the domains where they fitted, which `allocate` uses in a later session.
"""

from collections.abc import Callable

from msgspec import Struct

from gpuconsole.scheduling.volcano.actions.domain_trial import plan
from gpuconsole.scheduling.volcano.actions.gang_victims import Bundle, bundles_of, in_order, only_allowed, requested
from gpuconsole.scheduling.volcano.actions.pending_sub_jobs import drained, worksheet
from gpuconsole.scheduling.volcano.actions.starving_jobs import starving_by_queue
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.labels import PREEMPTABLE
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO, Resource
from gpuconsole.scheduling.volcano.api.status import PREEMPTABLE_STATUS, TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.domains import TOP
from gpuconsole.scheduling.volcano.functions import EvictionContext, Purpose, VictimRequester
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.statement import CannotPlace, VolcanoStatement

MOST_DOMAINS = 8


class GangOptions(Struct, frozen=True, kw_only=True):
    """Arguments of gangpreempt and gangreclaim."""

    most_domains: int = MOST_DOMAINS
    """How many domains are tried for each job (maxDomains)."""
    whole: bool = True
    """True if bundles that break a victim's gang are allowed (allowWholeBundle)."""

    @classmethod
    def of(cls, arguments: VolcanoArguments) -> "GangOptions":
        """Read the action's arguments; maxDomains below 1 is the default."""
        said = arguments.integer("maxDomains", MOST_DOMAINS)
        return cls(most_domains=said if said > 0 else MOST_DOMAINS, whole=arguments.flag("allowWholeBundle", True))


def gangpreempt(session: VolcanoSession) -> None:
    """Preempt jobs of lower priority in the same queue for starving jobs."""
    _GangEviction(session, "gangpreempt", VictimRequester.GANG_PREEMPT).run()


def gangreclaim(session: VolcanoSession) -> None:
    """Reclaim from jobs of other queues for starving jobs."""
    _GangEviction(session, "gangreclaim", VictimRequester.GANG_RECLAIM).run()


class _GangEviction:
    def __init__(self, session: VolcanoSession, name: str, kind: VictimRequester) -> None:
        self._session = session
        self._name = name
        self._kind = kind
        self._options = GangOptions.of(session.configuration.arguments_of(name))
        self._remembers = session.configuration.arguments_of("allocate").flag("predicateErrorCacheEnable", True)

    def run(self) -> None:
        session = self._session
        queues, starving = starving_by_queue(session)
        while queues:
            queue = queues.pop()
            if self._kind is VictimRequester.GANG_RECLAIM and session.overused(queue):
                continue
            jobs = starving.get(queue.uid)
            while jobs:
                self._try(queue, jobs.pop())

    def _try(self, queue: QueueInfo, job: JobInfo) -> None:
        """Evict for a job; nothing happens unless everything that must start fits."""
        session = self._session
        statement = VolcanoStatement(session)
        places = self._make_room(statement, queue, job)
        if not session.job_pipelined(job):
            statement.discard()
            return
        statement.commit()
        for uid, hyper_node in places.items():
            job.sub_jobs[uid].nominated_hyper_node = hyper_node

    def _make_room(self, statement: VolcanoStatement, queue: QueueInfo, job: JobInfo) -> dict[str, str]:
        session = self._session
        pending = self._pending(job)
        if not pending or (self._kind is VictimRequester.GANG_RECLAIM and not session.preemptive(queue, pending)):
            return {}
        need = Resource()
        for task in pending:
            need.add(task.init_request)
        for domain in self._domains(job):
            idle = Resource()
            for node in session.real_node_list[domain]:
                idle.add(node.idle).add(node.releasing)
            victims: list[TaskInfo] = []
            for bundle in self._bundles(job, need, domain):
                victims += bundle.tasks
                if not need.less_equal(idle.clone().add(requested(victims)), ZERO):
                    continue
                found = plan(session, queue, job, domain, victims, self._name, remembers=self._remembers)
                if found is None:
                    continue
                try:
                    statement.recover(found.operations)
                except CannotPlace:
                    continue
                return found.places
        return {}

    def _pending(self, job: JobInfo) -> list[TaskInfo]:
        """Tasks that the job still has to place; of a running job only those of its next sub-job."""
        sheet = worksheet(self._session, job, lambda task: not task.gated and not task.request.is_empty())
        sub_jobs = sheet.sub_jobs
        found: list[TaskInfo] = []
        while sub_jobs:
            found += drained(sheet.tasks[sub_jobs.pop().uid])
            if self._session.job_ready(job):
                break
        return found

    def _domains(self, job: JobInfo) -> list[str]:
        """Domains to try, the closest first."""
        session = self._session
        gradients = session.job_gradients(job, session.hyper_nodes[TOP], Purpose.EVICT)
        names = list(dict.fromkeys(info.name for gradient in gradients for info in gradient))
        if not names and not job.contains_hard_topology:
            names = [TOP]
        return [name for name in names[: self._options.most_domains] if session.real_node_list.get(name)]

    def _bundles(self, job: JobInfo, need: Resource, domain: str) -> list[Bundle]:
        """Bundles of victims in a domain, in eviction order."""
        session = self._session
        candidates: dict[str, list[TaskInfo]] = {}
        for node in session.real_node_list[domain]:
            for _, task in sorted(node.tasks.items()):
                if self._may_go(job, task):
                    candidates.setdefault(task.job, []).append(task.clone())
        bundles = [bundle for uid in sorted(candidates) for bundle in bundles_of(session.jobs[uid], candidates[uid])]
        bundles = in_order(bundles, need, self._before(job))
        context = EvictionContext(self._kind, job, hyper_node=domain)
        allowed = session.unified_evictable(context, [task for bundle in bundles for task in bundle.tasks])
        left = in_order(only_allowed(bundles, allowed or ()), need, self._before(job))
        return [bundle for bundle in left if self._options.whole or not bundle.whole]

    def _may_go(self, job: JobInfo, task: TaskInfo) -> bool:
        session = self._session
        victim = session.jobs.get(task.job)
        if victim is None or not task.preemptable or not _lets_go(victim):
            return False
        if self._kind is VictimRequester.GANG_RECLAIM:
            running = task.status is TaskStatus.RUNNING
            return running and victim.queue != job.queue and session.queues[victim.queue].reclaimable
        if task.status not in PREEMPTABLE_STATUS or victim.queue != job.queue:
            return False
        return job.priority > victim.priority

    def _before(self, job: JobInfo) -> Callable[[Bundle, Bundle], int]:
        """Eviction order of bundles: by job order in reverse, or by the order of victim queues."""
        session = self._session

        def by_job(left: Bundle, right: Bundle) -> int:
            if left.job.uid == right.job.uid:
                return 0
            return 1 if session.job_first(left.job, right.job) else -1

        def by_queue(left: Bundle, right: Bundle) -> int:
            ours, theirs = session.queues[left.job.queue], session.queues[right.job.queue]
            if ours.uid == theirs.uid:
                return 0
            mine = session.queues[job.queue]
            one, other = session.victim_queue_first(ours, theirs, mine), session.victim_queue_first(theirs, ours, mine)
            return 0 if one == other else -1 if one else 1

        return by_queue if self._kind is VictimRequester.GANG_RECLAIM else by_job


def _lets_go(job: JobInfo) -> bool:
    """False if the PodGroup is marked as not preemptable; the default is preemptable."""
    group = job.pod_group
    said = group is not None and (PREEMPTABLE in group.annotations or PREEMPTABLE in group.labels)
    return job.preemptable if said else True
