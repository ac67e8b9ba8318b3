"""KAI as the engine that places pods: each pass opens one session and takes its actions. Mutates.

Where KAI goes by the order of a Go map, the first by name wins. KAI leaves the choice of a whole GPU to the device
plugin: a pod gets GPUs close to each other (devices/inside.py), one that shares gets the GPU of its group.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import Bind, EvictPod, PlacementDecision, Unschedulable
from gpuconsole.model.gpus.mig import Instance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.devices import inside
from gpuconsole.scheduling.kai import reading
from gpuconsole.scheduling.kai.api.jobs import Job
from gpuconsole.scheduling.kai.api.statuses import ALLOCATED, Status
from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Configuration, read
from gpuconsole.scheduling.kai.dra import granted
from gpuconsole.scheduling.kai.fair_share.quantities import Quantities, of_request, plus, quantities
from gpuconsole.scheduling.kai.fair_share.tree import total_of
from gpuconsole.scheduling.kai.opening import run_actions
from gpuconsole.scheduling.kai.policy import KaiPolicy, UsagePolicy
from gpuconsole.scheduling.kai.room import room
from gpuconsole.scheduling.kai.saying import words
from gpuconsole.scheduling.kai.session import Bound, Evicted, Session
from gpuconsole.scheduling.kai.store import Store
from gpuconsole.scheduling.kai.table import score_table
from gpuconsole.scheduling.kai.timing import next_change
from gpuconsole.scheduling.kai.usage import Stretch, UsageBook
from gpuconsole.scheduling.placement import SessionPlacement
from gpuconsole.scheduling.score_table import ScoreTable


class Memory(Struct, frozen=True):
    """What objects do not tell about earlier sessions."""

    stale: dict[str, Time]
    stirred: bool
    alarm: Time | None
    rung: Time
    usage: list[Stretch]


class KaiPlacement(SessionPlacement):
    """The objects that KAI looks at, who owns which GPU, and since when gangs are stale."""

    def __init__(self, policy: KaiPolicy) -> None:
        super().__init__()
        self.policy = policy
        self._configuration = read(policy.conf) if policy.conf else Configuration()
        self._store = Store()
        self._stale: dict[str, Time] = {}
        self._usage = _usage_book(policy.usage)
        self._made_way: dict[str, int] = {}
        """Pod → how many victims of this pass go for it."""

    @property
    def has_pending(self) -> bool:
        """True if a pod waits, and anything changed since the last session."""
        return self._stirred and (bool(self._stale) or self._store.any_waiting)

    def apply(self, thing: Object, now: Time) -> None:
        """An object appeared or changed. Kinds that KAI does not look at are ignored."""
        self._stirred = self._store.apply(thing) or self._stirred

    def delete(self, table: str, key: str, now: Time) -> None:
        """An object is gone; `table` as in `objects.TABLES`."""
        self._stirred = self._store.delete(table, key) or self._stirred

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Open a session and take the actions; binds and evictions are assumed."""
        self._stirred = False
        session = self._session(now)
        decided = run_actions(session)
        said: list[PlacementDecision] = []
        groups: dict[tuple[str, str], int] = {}
        self._made_way = {}
        for decision in decided:
            match decision:
                case Bound(task):
                    said.append(self._bind(task, now, groups, session))
                case Evicted():
                    said.append(self._evict(decision, now, session))
                case _:
                    pass
        self._stale = {uid: job.stale_since for uid, job in session.jobs.items() if job.stale_since is not None}
        self._alarm = next_change(session)
        self._note_usage(now, session)
        return [*said, *self._words(session)]

    def _session(self, now: Time) -> Session:
        usage = self._usage.usage(now) if self._usage else {}
        return self._store.session(now, self.policy, self._configuration, self._stale, usage)

    def _bind(self, task: Task, now: Time, groups: dict[tuple[str, str], int], session: Session) -> Bind:
        """Settle which GPUs the task owns: those of its groups, else such as are close to each other."""
        free = self._store.books.free_on(task.node)
        if task.groups:
            for group in task.groups:
                if (task.node, group) not in groups:
                    groups[(task.node, group)] = int(group) if group.isdigit() else free.pop(0)
            gpus = tuple(sorted(groups[(task.node, group)] for group in task.groups))
        else:
            gpus = inside.choose(self._store.nodes.get(task.node), tuple(free), int(task.accepted.gpus))
        self._store.books.seat(task.uid, task.node, gpus)
        pod = self._store.pods[task.uid]
        slices = self._store.instances(pod, task.node)
        self._store.pods[task.uid] = replace(
            pod, node=task.node, gpus=gpus, slices=slices, bound=now, message="", nominated_node=""
        )
        plan = session.promised.get(task.uid)
        volumes = plan.volumes if plan is not None else ()
        return Bind(task.uid, task.node, gpus, slices, volumes, granted(session.claims, task))

    def _evict(self, evicted: Evicted, now: Time, session: Session) -> EvictPod:
        """A victim goes; for whom, is a pod of the job that comes, one on the same node where there is one."""
        uid = evicted.task.uid
        pod = self._store.pods[uid]
        self._store.pods[uid] = replace(pod, deleted=now)
        there = sorted(
            (task.node != pod.node, self._made_way.get(task.uid, 0), task.uid)
            for job in session.jobs.values()
            if f"{job.namespace}/{job.name}" == evicted.by
            for task in job.tasks()
            if task.status is Status.PIPELINED
        )
        by = there[0][2] if there else ""
        self._made_way[by] = self._made_way.get(by, 0) + 1
        return EvictPod(uid, by, pod.node, evicted.message, evicted.action)

    def _words(self, session: Session) -> list[PlacementDecision]:
        """Why pods and pod groups still wait, where that is news."""
        store, pool = self._store, self.policy.parameters.node_pool
        said = [
            word for job in session.jobs.values() for word in words(job, store.pods, store.groups.get(job.uid), pool)
        ]
        for word in said:
            if isinstance(word, Unschedulable):
                store.pods[word.pod] = replace(store.pods[word.pod], message=word.message)
        return said

    def _note_usage(self, now: Time, session: Session) -> None:
        if self._usage is not None:
            held = {uid: quantities() for uid in session.queues}
            for job in session.jobs.values():
                _add_use(held, job, session)
            self._usage.note(now, held, total_of(session.nodes.values(), session.parameters))

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the GPUs that nobody owns, by node."""
        return self._store.books.free()

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs that a pod owns; none if it sits on no node."""
        return self._store.books.of(pod)

    def slices_of(self, pod: str) -> tuple[Instance, ...]:
        """The MIG instances that a pod owns; none if it sits on no node."""
        known = self._store.pods.get(pod)
        return known.slices if known is not None and known.node else ()

    def scores(self, pod: Pod) -> ScoreTable | None:
        """KAI's predicates and bands of scores for a pod as if it came now; scores are in hundredths."""
        store = self._store if pod.key in self._store.pods else self._store.fork()
        if pod.key not in store.pods:
            store.apply(pod)
        session = store.session(0, self.policy, self._configuration, {}, {})
        task = next((task for job in session.jobs.values() for task in job.tasks() if task.uid == pod.key), None)
        return None if task is None else score_table(session, task)

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once, whatever queues allow."""
        session = self._session(0)
        task = reading.template_task(template, 0, self.policy.parameters.scheduler_name)
        return sum(room(node, task) for node in session.nodes.values())

    def fork(self) -> "KaiPlacement":
        """An engine that starts equal and never touches this one."""
        twin = KaiPlacement.__new__(KaiPlacement)
        twin.policy, twin._configuration = self.policy, self._configuration
        twin._store, twin._stale = self._store.fork(), dict(self._stale)
        twin._usage = self._usage.fork() if self._usage else None
        twin._stirred, twin._made_way = self._stirred, {}
        twin._alarm, twin._rung = self._alarm, self._rung
        return twin

    def memory(self) -> tuple[str, ...]:
        """What applying all objects to a new engine would not bring back."""
        pages = self._usage.pages() if self._usage else []
        memory = Memory(self._stale, self._stirred, self._alarm, self._rung, pages)
        return (msgspec.json.encode(memory).decode(),)

    def recall(self, memory: tuple[str, ...]) -> None:
        """Take back what `memory` gave, after all objects were applied."""
        for text in memory:
            known = msgspec.json.decode(text, type=Memory)
            self._stale, self._stirred = dict(known.stale), known.stirred
            self._alarm, self._rung = known.alarm, known.rung
            if self._usage is not None:
                self._usage.take_back(known.usage)


def _usage_book(policy: UsagePolicy | None) -> UsageBook | None:
    return None if policy is None else UsageBook(policy.window, policy.half_life)


def _add_use(held: dict[str, Quantities], job: Job, session: Session) -> None:
    """Count what the job holds, for its queue and those above."""
    for task in job.tasks():
        if task.status in ALLOCATED:
            queue = session.queues.get(job.queue)
            while queue is not None:
                held[queue.uid] = plus(held[queue.uid], of_request(task.accepted))
                queue = session.queues.get(queue.parent)
