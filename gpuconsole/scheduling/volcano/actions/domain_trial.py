"""Trial that checks whether a gang fits a domain after its victims are evicted (BuildNominationPlanInDomain)."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpuconsole.scheduling.volcano.actions.pending_sub_jobs import Worksheet, worksheet
from gpuconsole.scheduling.volcano.api.fit_errors import FitError
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.sub_job import SubJobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.functions import Purpose
from gpuconsole.scheduling.volcano.search import Finder, choose_node, resource_fit
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.statement import CannotPlace, StatementStep, VolcanoStatement, saved


class NominationPlan(Struct, frozen=True):
    """The steps that place a gang, and the hyper node of each sub-job."""

    operations: list[StatementStep]
    places: dict[str, str]


def plan(
    session: VolcanoSession,
    queue: QueueInfo,
    job: JobInfo,
    domain: str,
    victims: Sequence[TaskInfo],
    reason: str,
    *,
    remembers: bool,
) -> NominationPlan | None:
    """A plan to place enough of the job in the domain once the victims are evicted, or None; the session is
    unchanged.
    """
    sheet = worksheet(session, job, lambda task: not task.gated and not task.request.is_empty())
    if not sheet or not session.real_node_list.get(domain):
        return None
    was_ready = session.job_ready(job)
    chain = [VolcanoStatement(session)]
    for victim in victims:
        chain[0].evict(victim, reason)
    places: dict[str, str] = {}
    enough = False
    try:
        while sheet.sub_jobs and not enough:
            sub_job = sheet.sub_jobs.pop()
            won = _place(session, queue, job, sub_job, sheet, domain, bool(victims), remembers=remembers)
            if won is None:
                return None
            statement, places[sub_job.uid] = won
            chain.append(statement)
            enough = session.job_pipelined(job)
            if was_ready:
                break
        return NominationPlan(saved(chain), places) if enough else None
    finally:
        for statement in reversed(chain):
            statement.discard()


def _place(
    session: VolcanoSession,
    queue: QueueInfo,
    job: JobInfo,
    sub_job: SubJobInfo,
    sheet: Worksheet,
    domain: str,
    evicted: bool,
    *,
    remembers: bool,
) -> tuple[VolcanoStatement, str] | None:
    """Pipeline a sub-job in the first hyper node that fits it."""
    for name in _hyper_nodes(session, job, sub_job, domain):
        trial = VolcanoStatement(session)
        finder = Finder(session, remembers=remembers)
        tasks = sheet.tasks[sub_job.uid].clone()
        placed = True
        while tasks and placed:
            placed = _reserve(session, queue, finder, trial, tasks.pop(), name, evicted)
        done = session.sub_job_ready(job, sub_job) or session.sub_job_pipelined(job, sub_job)
        if placed and trial.operations and done:
            return trial, name
        trial.discard()
    return None


def _hyper_nodes(session: VolcanoSession, job: JobInfo, sub_job: SubJobInfo, domain: str) -> Iterator[str]:
    if not job.contains_hard_topology:
        yield domain
        return
    for gradient in session.sub_job_gradients(sub_job, session.hyper_nodes[domain], Purpose.EVICT):
        yield from (info.name for info in gradient)


def _reserve(
    session: VolcanoSession,
    queue: QueueInfo,
    finder: Finder,
    trial: VolcanoStatement,
    task: TaskInfo,
    hyper_node: str,
    evicted: bool,
) -> bool:
    """Pipeline a task to the best node; False if none fits."""
    if not session.allocatable(queue, task):
        return False
    resolvable = {node.name for node in session.resolvable_nodes(task)}
    nodes = [node for node in session.real_node_list.get(hyper_node, ()) if node.name in resolvable]
    if not nodes or session.pre_predicate(task) is not None:
        return False

    def fits(task: TaskInfo, node: NodeInfo) -> FitError | None:
        return resource_fit(task, node) or session.predicate_for_preempt(task, node)

    best = choose_node(session, task, finder.fitting(task, nodes, fits)[0])
    if best is None or not task.init_request.less_equal(best.future_idle(), ZERO):
        return False
    try:
        trial.pipeline(task, best.name, eviction_occurred=evicted)
    except CannotPlace:
        return False
    return True
