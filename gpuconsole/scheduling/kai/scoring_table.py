"""KAI's scheduling decision for a pod as a table: predicates and score bands by node."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus, PodInfo
from gpuconsole.scheduling.kai.functions import NodeSet, NoNodes
from gpuconsole.scheduling.kai.messages import UNABLE_POD, NodeError, misfit, summary
from gpuconsole.scheduling.kai.plugins.predicates import PREDICATES
from gpuconsole.scheduling.kai.ranking import span
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, ScoreColumn, ScoreTable

RESOURCES, TOPOLOGY = "NodeResources", "Topology"
COLUMNS = (RESOURCES, *PREDICATES, TOPOLOGY)
NO_GPU_TO_SHARE = "node(s) didn't have enough resources: GPUs"
NO_DOMAIN = "no domain of the topology that takes the group has the node"
UNIT = 100
"""The table has scores in hundredths, as the density score is a fraction."""


def score_table(session: KaiSession, task: PodInfo) -> ScoreTable:
    """The table for a task of the session as if it were pending; a placed task is removed from its node."""
    job = session.jobs[task.job]
    if task.node:
        session.nodes[task.node].remove(task.uid)
        job.update(task, KaiPodStatus.PENDING)
        task.node, task.groups = "", ()
    refusal = session.refusal(task, job)
    nodes = _nodes_for(session, job, task)
    bands = _bands(session)
    spans = _spans(session, task, nodes)
    inside = {node.name for node in nodes}
    rows = {
        node.name: _row(session, task, job, node, (bands, spans), node.name in inside) for node in session.all_nodes
    }
    ranked = [] if refusal else [node.name for node in session.ranking(task, nodes).in_order()]
    fitting = [name for name in ranked if rows[name].fits]
    if fitting:
        rows[fitting[0]] = replace(rows[fitting[0]], chosen=True)
    return ScoreTable(
        pod=task.uid,
        scheduler=session.parameters.scheduler_name,
        filters=tuple(FilterColumn(name) for name in COLUMNS),
        plugins=tuple(ScoreColumn(name, band) for name, band in bands.items()),
        rows=tuple(rows[name] for name in dict.fromkeys([*fitting, *rows])),
        tie=tuple(name for name in fitting[1:] if rows[name].total == rows[fitting[0]].total),
        message="" if fitting else refusal or _message(session, task, job, nodes),
    )


def _bands(session: KaiSession) -> dict[str, int]:
    """Plugins and their score bands, the highest first."""
    bands = {scorer.plugin: scorer.band for scorer in session.functions.node_order}
    bands.update((measure.plugin, measure.band) for measure in session.functions.measures)
    return dict(sorted(bands.items(), key=lambda item: -item[1]))


def _spans(session: KaiSession, task: PodInfo, nodes: NodeSet) -> list[tuple[float, float]]:
    measured = ([m.measure(task, node) for node in nodes] for m in session.functions.measures)
    return [span([value for value in values if value is not None]) for values in measured]


def _nodes_for(session: KaiSession, job: PodGroupInfo, task: PodInfo) -> NodeSet:
    """Nodes of the first domain that fits the task's group; all nodes without a topology constraint."""
    for prepare in session.functions.before_job:
        prepare(job)
    groups: list[SubGroup | PodSetInfo] = [job.pod_sets[task.set_name]]
    while (above := groups[-1].parent) is not None:
        groups.append(above)
    nodes = session.all_nodes
    for group in reversed(groups):
        try:
            found = session.subsets(job, group, job.pod_sets, [task], nodes)
        except NoNodes:
            return []
        nodes = found[0] if found else []
    return nodes


Shares = tuple[Mapping[str, int], Sequence[tuple[float, float]]]
"""Score bands by plugin, and the (lowest, highest) value of each measure."""


def _row(
    session: KaiSession, task: PodInfo, job: PodGroupInfo, node: KaiNodeInfo, shares: Shares, inside: bool
) -> NodeRow:
    errors: dict[str, NodeError] = {}
    if not node.fits(task):
        lack = misfit(task, node, False)
        errors[RESOURCES] = lack if lack is not None else NodeError((NO_GPU_TO_SHARE,))
    for ask in session.functions.verdicts:
        for name, error in ask(task, job, node):
            errors.setdefault(name, error)
    if not inside:
        errors[TOPOLOGY] = NodeError((NO_DOMAIN,))
    verdicts = tuple(", ".join(errors[name].reasons) if name in errors else "" for name in COLUMNS)
    scores = () if errors else _scores(session, task, node, shares)
    return NodeRow(node=node.name, verdicts=verdicts, scores=scores, total=sum(score.weighted for score in scores))


def _scores(session: KaiSession, task: PodInfo, node: KaiNodeInfo, shares: Shares) -> tuple[NodeScore, ...]:
    bands, spans = shares
    given = dict.fromkeys(bands, 0.0)
    for scorer in session.functions.node_order:
        given[scorer.plugin] += scorer.score(task, node)
    for measure, reach in zip(session.functions.measures, spans, strict=True):
        given[measure.plugin] += measure.weigh(measure.measure(task, node), *reach)
    return tuple(
        NodeScore(round(score), round(score * 100 / bands[name]), round(score * UNIT)) for name, score in given.items()
    )


def _message(session: KaiSession, task: PodInfo, job: PodGroupInfo, nodes: NodeSet) -> str:
    """The message that KAI would write to the pod if no node fits it."""
    job.task_errors.pop(task.uid, None)
    for node in nodes:
        session.fits(task, node, True)
    errors = job.task_errors.get(task.uid)
    if errors is not None:
        return errors.message
    return summary(job.errors) if job.errors else UNABLE_POD
