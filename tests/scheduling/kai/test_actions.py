"""What a session of KAI decides: who is placed, who waits for whom, who goes."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Pod
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.pod_template import PodAffinity, PodTemplate, PodTerm
from gpuconsole.scheduling.kai.api.jobs import TopologyConstraint, TopologyInfo
from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus
from gpuconsole.scheduling.kai.config import (
    DEFAULT_TIERS,
    InvalidArgument,
    KaiConfiguration,
    KaiPluginOption,
    SchedulerFlags,
    Tier,
    parse_configuration,
)
from gpuconsole.scheduling.kai.session import KaiSession
from tests.support.kai_clusters import NOW, after, job, node, queue, session

Made = Callable[[], KaiSession]
Decided = list[tuple[str, str, str]]


class Case(Struct, frozen=True):
    made: Made
    actions: tuple[str, ...]
    want: Decided


def case(actions: str, want: Decided, nodes: list[Any], queues: list[Any], jobs: list[Any], **rest: Any) -> Case:
    """Nodes and jobs are made anew for each run, as sessions change them."""
    return Case(
        lambda: session([node(*n) for n in nodes], queues, [job(*args, **words) for args, words in jobs], **rest),
        tuple(actions.split()),
        want,
    )


def of(name: str, gpus: float, *seats: str, **words: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (name, gpus, seats), words


TWO = [("n1", 4), ("n2", 4)]
A, B = queue("a", 4), queue("b", 4)
RACKS = [("n1", 2, {"rack": "r1"}), ("n2", 2, {"rack": "r1"}), ("n3", 2, {"rack": "r2"}), ("n4", 2, {"rack": "r2"})]

CASES = {
    "a gang that does not fit whole is not placed at all": case("allocate", [], TWO, [A], [of("gang", 4, "", "", "")]),
    "a gang that fits is placed whole, the fuller node first": case(
        "allocate",
        [("bind", "gang-0", "n2"), ("bind", "gang-1", "n2"), ("bind", "gang-2", "n1")],
        TWO,
        [A],
        [of("busy", 2, "n2"), of("gang", 1, "", "", "")],
    ),
    "an elastic job starts with its minimum and grows while there is room": case(
        "allocate",
        [("bind", "job-0", "n1"), ("bind", "job-1", "n1"), ("bind", "job-2", "n1")],
        [("n1", 3)],
        [A],
        [of("job", 1, "", "", "", "", least=2)],
    ),
    "a job waits for what leaves, and its gang with it": case(
        "reclaim allocate",
        [("evict", "big-0", ""), ("wait", "gang-0", "n1"), ("wait", "gang-1", "n1")],
        [("n1", 4)],
        [queue("a", 4), queue("b", 0)],
        [of("big", 4, "n1", queue="b"), of("gang", 2, "", "")],
    ),
    "fractions pack onto the GPU that is shared already": case(
        "allocate",
        [("bind", "half-0", "n2")],
        TWO,
        [A],
        [of("other", 0.5, "n2", groups=["g"]), of("half", 0.5, "")],
    ),
    "the queue that holds the smaller part of its share is served first": case(
        "allocate",
        [("bind", "late-0", "n1")],
        [("n1", 3)],
        [A, B],
        [of("running", 1, "n1", "n1"), of("early", 1, "", age=9), of("late", 1, "", queue="b")],
    ),
    "a queue at its limit waits though GPUs are free": case(
        "allocate", [], TWO, [queue("a", 1, limit=1)], [of("job", 2, "")]
    ),
    "what can never be taken back stays within quota": case(
        "allocate", [], TWO, [queue("a", 1)], [of("build", 2, "", priority=100)]
    ),
    "a required rack takes the gang whole or not at all": case(
        "allocate",
        [("bind", "gang-0", "n3"), ("bind", "gang-1", "n4")],
        RACKS,
        [A],
        [of("busy", 1, "n1"), of("gang", 2, "", "")],
        topologies=[TopologyInfo("racks", ("rack",))],
    ),
    "reclaim takes what is beyond the other's fair share, the youngest first": case(
        "reclaim",
        [("evict", "young-0", ""), ("wait", "mine-0", "n2")],
        TWO,
        [A, B],
        [of("old", 4, "n1", queue="b", age=9), of("young", 4, "n2", queue="b"), of("mine", 4, "")],
    ),
    "reclaim leaves the other its fair share": case(
        "reclaim", [], TWO, [A, B], [of("theirs", 4, "n1", queue="b"), of("own", 4, "n2"), of("mine", 2, "")]
    ),
    "reclaim does not take what has not run for its minimum": case(
        "reclaim",
        [],
        TWO,
        [A, queue("b", 4, reclaim_min_runtime=5 * MINUTE)],
        [of("theirs", 4, "n1", queue="b"), of("more", 4, "n2", queue="b"), of("mine", 4, "")],
    ),
    "what has run long enough is reclaimed": case(
        "reclaim",
        [("evict", "theirs-0", ""), ("wait", "mine-0", "n1")],
        [("n1", 4)],
        [A, queue("b", 0, reclaim_min_runtime=5 * MINUTE)],
        [of("theirs", 4, "n1", queue="b", started=NOW - 6 * MINUTE), of("mine", 4, "")],
    ),
    "an elastic victim loses what is above its minimum only": case(
        "reclaim",
        [("evict", "theirs-3", ""), ("wait", "mine-0", "n1")],
        [("n1", 4)],
        [queue("a", 1), queue("b", 3)],
        [of("theirs", 1, "n1", "n1", "n1", "n1", queue="b", least=2), of("mine", 1, "")],
    ),
    "preempt takes a job of lower priority in the same queue": case(
        "preempt",
        [("evict", "low-0", ""), ("wait", "high-0", "n1")],
        [("n1", 4)],
        [A, B],
        [of("low", 4, "n1", priority=50), of("high", 4, "", priority=75)],
    ),
    "preempt takes nobody of the same priority": case(
        "preempt", [], [("n1", 4)], [A], [of("one", 4, "n1", priority=75), of("two", 4, "", priority=75, age=9)]
    ),
    "a smaller job is tried though a larger one like it failed": case(
        "preempt",
        [("evict", "low-0", ""), ("wait", "small-0", "n1")],
        [("n1", 4)],
        [queue("a", 8)],
        [
            of("build", 2, "n1", priority=100),
            of("low", 2, "n1"),
            of("large", 4, "", priority=75, age=9),
            of("small", 2, "", priority=75),
        ],
    ),
    "a job below its minimum comes before one that only grows": case(
        "allocate",
        [("bind", "fresh-0", "n1")],
        [("n1", 2)],
        [A],
        [of("grown", 1, "n1", "", least=1, age=9), of("fresh", 1, "")],
    ),
    "what a job adds stays in the rack where it began": case(
        "allocate",
        [],
        RACKS,
        [queue("a", 8)],
        [of("busy", 2, "n2"), of("gang", 2, "n1", "", least=1)],
        topologies=[TopologyInfo("racks", ("rack",))],
    ),
    "an elastic victim loses as many tasks as are needed": case(
        "reclaim",
        [("evict", "theirs-2", ""), ("evict", "theirs-3", ""), ("wait", "mine-0", "n1")],
        [("n1", 4)],
        [queue("a", 2), queue("b", 2)],
        [of("theirs", 1, "n1", "n1", "n1", "n1", queue="b", least=1), of("mine", 2, "")],
    ),
    "preempt never looks into another queue": case(
        "preempt", [], [("n1", 4)], [A, B], [of("low", 4, "n1", queue="b", priority=1), of("high", 4, "", priority=75)]
    ),
    "preempt takes nothing that cannot be taken back": case(
        "preempt",
        [],
        [("n1", 4)],
        [queue("a", 8)],
        [of("build", 4, "n1", priority=100), of("top", 4, "", priority=125)],
    ),
    "consolidation moves a job so that another fits": case(
        "consolidation",
        [("evict", "two-0", ""), ("wait", "two-0", "n1"), ("wait", "big-0", "n2")],
        TWO,
        [queue("a", 8)],
        [of("one", 2, "n1", age=9), of("two", 2, "n2"), of("big", 4, "", age=5)],
    ),
    "consolidation moves nobody who would not find another place": case(
        "consolidation",
        [],
        TWO,
        [queue("a", 8)],
        [of("one", 3, "n1"), of("two", 3, "n2"), of("big", 2, "", age=5)],
    ),
    "consolidation is off where no victims are to be looked at": case(
        "consolidation",
        [],
        TWO,
        [queue("a", 8)],
        [of("one", 2, "n1"), of("two", 2, "n2"), of("big", 4, "", age=5)],
        parameters=SchedulerFlags(max_consolidation_victims=0),
    ),
    "a gang below its minimum is evicted whole after its grace": case(
        "stalegangeviction",
        [("evict", "torn-0", ""), ("evict", "torn-1", "")],
        TWO,
        [A],
        [of("torn", 1, "n1", "n1", "", stale_since=NOW - MINUTE)],
    ),
    "a gang below its minimum is left alone within its grace": case(
        "stalegangeviction", [], TWO, [A], [of("torn", 1, "n1", "n1", "", stale_since=NOW - MINUTE + 1)]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_session(name: str) -> None:
    found = CASES[name]
    made = found.made()
    if made.topologies:
        made.jobs["gang"].root.constraint = TopologyConstraint(topology="racks", required="rack")
    decided = after(made, *found.actions)
    assert sorted(decided) == sorted(found.want), decided


def test_a_job_says_why_its_gang_found_no_place() -> None:
    made = session([node("n1", 2)], [A], [job("gang", 1, ["", "", ""])])
    after(made, "allocate")
    assert [error.detail for error in made.jobs["gang"].errors] == [
        "Resources were found for 2 pods while 3 are required for gang scheduling. Additional pods cannot be scheduled"
        " due to: no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs."
    ]


def test_a_queue_at_its_limit_is_named() -> None:
    made = session([node("n1", 4)], [queue("a", 1, limit=1)], [job("job", 2, [""])])
    after(made, "allocate")
    assert [(error.reason, error.messages) for error in made.jobs["job"].errors] == [
        (
            "OverLimit",
            (
                "a quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs allocated and"
                " workload requested 2 GPUs",
            ),
        )
    ]


def test_a_victim_of_reclaim_is_told_what_both_queues_hold_and_may_hold() -> None:
    made = session([node("n1", 4)], [A, queue("b", 0)], [job("theirs", 4, ["n1"], queue="b"), job("mine", 4, [""])])
    after(made, "reclaim")
    (evicted, _) = made.decisions
    assert getattr(evicted, "message", "") == (
        "Pod /theirs-0 was preempted by workload /mine.\n"
        "b uses <GPU: 4, CPU: 1 (cores), memory: 1 (GB)> with a quota of <GPU: 0, CPU: Unlimited (cores), memory:"
        " Unlimited (GB)>, fair-share of <GPU: 0, CPU: 1 (cores), memory: 1 (GB)> and queue priority of <100>.\n"
        "a uses <GPU: 0, CPU: 0 (cores), memory: 0 (GB)> with a quota of <GPU: 4, CPU: Unlimited (cores), memory:"
        " Unlimited (GB)>, fair-share of <GPU: 4, CPU: 1 (cores), memory: 1 (GB)> and queue priority of <100>."
    )


def test_spreading_takes_the_emptiest_node_and_whole_gpus() -> None:
    spread = KaiPluginOption(name="nodeplacement", arguments={"gpu": "spread"})
    tiers = (Tier((KaiPluginOption(name="gpuspread"), spread)),)
    jobs = [job("other", 0.5, ["n1"], groups=["g"]), job("half", 0.5, [""])]
    made = session([node("n1", 2), node("n2", 2)], [A], jobs, configuration=KaiConfiguration(tiers=tiers))
    assert after(made, "allocate") == [("bind", "half-0", "n2")]


def test_a_configuration_is_read_as_kai_writes_it() -> None:
    conf = parse_configuration(
        """
        actions: "allocate, reclaim"
        tiers:
        - plugins:
          - name: proportion
            arguments: {kValue: "0.5"}
        queueDepthPerAction: {reclaim: 10}
        """
    )
    assert conf == KaiConfiguration(
        actions=("allocate", "reclaim"),
        tiers=(Tier((KaiPluginOption(name="proportion", arguments={"kValue": "0.5"}),)),),
        queue_depth={"reclaim": 10},
    )


def test_a_gang_waits_whole_when_a_part_of_it_has_to_wait() -> None:
    leaving = job("leaving", 1, ["n1"], queue="b")
    made = session([node("n1", 2)], [A, B], [leaving, job("gang", 1, ["", ""])])
    task = next(leaving.tasks())
    leaving.update_status(task, KaiPodStatus.RELEASING)
    made.nodes["n1"].update_task(task)
    assert sorted(after(made, "allocate")) == [("wait", "gang-0", "n1"), ("wait", "gang-1", "n1")]
    assert made.jobs["gang"].started is None


@pytest.mark.parametrize(("plugin", "want"), [("gpupack", "full"), ("gpuspread", "light")])
def test_of_shared_gpus_packing_takes_the_fullest_and_spreading_the_emptiest(plugin: str, want: str) -> None:
    jobs = [
        job("light", 0.25, ["n1"], groups=["light"]),
        job("full", 0.5, ["n1"], groups=["full"]),
        job("new", 0.25, [""]),
    ]
    tiers = (Tier((KaiPluginOption(name=plugin),)),)
    made = session([node("n1", 2)], [A], jobs, configuration=KaiConfiguration(tiers=tiers))
    after(made, "allocate")
    assert next(made.jobs["new"].tasks()).groups == (want,)


@pytest.mark.parametrize(("plugins", "want"), [((), "n1"), (("podaffinity",), "n2")])
def test_liked_neighbours_count_where_the_plugin_is_used(plugins: tuple[str, ...], want: str) -> None:
    near = PodAffinity(preferred=((10, PodTerm("host", LabelSelector(match_labels={"app": "cache"}))),))
    cache = job("cache", 0, ["n2"])
    for task in cache.tasks():
        task.spec = replace(task.spec, pod=Pod(name="cache", labels={"app": "cache"}))
    client = job("client", 1, [""])
    for task in client.tasks():
        task.spec = replace(task.spec, pod=Pod(name="client", template=PodTemplate(pod_affinity=near)))
    tier = Tier((*DEFAULT_TIERS[0].plugins, *(KaiPluginOption(name=name) for name in plugins)))
    nodes = [node(name, 2, {"host": name}) for name in ("n1", "n2")]
    made = session(nodes, [queue("a", 4)], [cache, client], configuration=KaiConfiguration(tiers=(tier,)))
    assert after(made, "allocate") == [("bind", "client-0", want)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tiers: " + "[" * 100_000, "line 1: it is nested deeper than 100 levels"),
        ("tiers: [{plugins: [{name: a, arguments: {a: " + "{a: " * 3000 + "}" * 3000 + "}}]}]", "line 1: it is nested"),
        ("tiers: &a [*a]", "line 1: *a contains itself"),
        ("actions: {", "line 2: invalid YAML"),
        ("actions: [a]", "Expected `str`, got `array`"),
    ],
    ids=["open lists", "deep mappings", "an alias of itself", "no YAML", "wrong type"],
)
def test_a_configuration_that_cannot_be_read_is_an_error_and_never_the_end_of_the_process(
    text: str, problem: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_configuration(text)
    assert str(caught.value).startswith(problem)
