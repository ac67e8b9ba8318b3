"""Nodes that are ranked once for tasks that are alike stand in the order that scoring all of them again would give."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo, TaskSpec
from gpuconsole.scheduling.kai.config import KaiConfiguration, KaiPluginOption, Tier
from gpuconsole.scheduling.kai.job_placement import KaiStatement
from gpuconsole.scheduling.kai.plugins.predicates import node_accepts
from gpuconsole.scheduling.kai.session import KaiSession, value_range
from tests.support.kai_clusters import job, node, queue, request, session

SPREAD = KaiConfiguration(
    tiers=(
        Tier(
            (
                *(KaiPluginOption(name=name) for name in ("predicates", "nodeavailability", "gpusharingorder")),
                KaiPluginOption(name="nodeplacement", arguments={"cpu": "binpack", "gpu": "spread"}),
            )
        ),
    )
)


def afresh(made: KaiSession, task: PodInfo) -> list[str]:
    """Every node scored for this task alone: what KAI does."""
    functions = made.functions
    values = [[m.measure(task, found) for found in made.all_nodes] for m in functions.relative_scores]
    spans = [value_range([value for value in column if value is not None]) for column in values]

    def total(found: KaiNodeInfo) -> float:
        relative = sum(
            m.score(m.measure(task, found), *reach) for m, reach in zip(functions.relative_scores, spans, strict=True)
        )
        return sum(scorer.score(task, found) for scorer in functions.node_order) + relative

    open_to = [
        found for found in made.all_nodes if found.is_allocatable_or_pipelinable(task) and node_accepts(task, found)
    ]
    return [found.name for found in sorted(open_to, key=lambda found: (-total(found), found.name))]


def ranked(made: KaiSession, task: PodInfo) -> list[str]:
    return [found.name for found in made.ranking(task, made.all_nodes).nodes_in_order()]


def cluster(gpus: list[int], configuration: KaiConfiguration) -> KaiSession:
    labels: Mapping[str, str] = {"pool": "fast"}
    nodes = [node(f"n{at}", count, labels if at % 3 else None) for at, count in enumerate(gpus)]
    jobs = [job(f"j{size}", size, [""] * 12, least=1) for size in (0, 0.5, 1, 2)]
    return session(nodes, [queue("a", 8)], jobs, configuration=configuration)


STEPS = st.lists(st.tuples(st.sampled_from(["0", "0.5", "1", "2"]), st.booleans()), max_size=10)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), STEPS, st.booleans())
def test_a_ranking_follows_every_change(gpus: list[int], steps: list[tuple[str, bool]], spread: bool) -> None:
    made = cluster(gpus, SPREAD if spread else KaiConfiguration())
    statement = KaiStatement(made)
    for size, undo in steps:
        task = made.jobs[f"j{size}"].pending_tasks[0]
        order = ranked(made, task)
        assert order == afresh(made, task)
        if not order:
            continue
        checkpoint = statement.checkpoint()
        if task.is_fractional:
            task.groups = (made.gpus_for_sharing(task, made.nodes[order[0]])[0],)
        if made.nodes[order[0]].is_allocatable(task):
            statement.allocate(task, order[0])
        if undo:
            statement.rollback(checkpoint)


def test_nodes_that_never_take_a_task_are_not_tried_but_named_when_nothing_is_found() -> None:
    made = cluster([4, 0, 4], KaiConfiguration())
    need, sort = request(2)
    choosy = PodInfo("choosy", job="j2", request=need, sort=sort, spec=TaskSpec(node_selector={"pool": "slow"}))
    assert ranked(made, choosy) == []
    made.record_lacking_nodes(choosy, made.ranking(choosy, made.all_nodes))
    said = {name: error.reasons for name, error in made.jobs["j2"].task_errors["choosy"].nodes.items()}
    assert said == {
        "n0": ("node(s) didn't match Pod's node affinity/selector",),
        "n1": ("node(s) didn't have enough resources: GPUs",),
        "n2": ("node(s) didn't match Pod's node affinity/selector",),
    }
