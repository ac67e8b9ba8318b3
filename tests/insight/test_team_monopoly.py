"""Monopolies where Kueue queues nothing: by namespace, by queue of Volcano, by queue of KAI."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.health.antipatterns import AntiPattern, AntiPatternCode, antipatterns
from gpuconsole.insight.linting import LintEngines
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.kai import KaiQueue, QueueResource
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import LocalQueue, Quota
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from tests.support.snapshots import A100, cluster_queue, node, pod, running, unseen, waiting, world

NAMESPACE_FIX = "limit the namespace with a ResourceQuota, or use Kueue with quota for each team"


def monopolies(*things: Object) -> list[AntiPattern]:
    return found(world(things))


def found(snapshot: Snapshot) -> list[AntiPattern]:
    patterns = antipatterns(snapshot, Prices(gpu_hour={}, other=2.0), (), LintEngines(unqueued=True))
    return [one for one in patterns if one.code is AntiPatternCode.MONOPOLY]


def of(team: str, name: str, gpus: int = 8, on: str = "", **fields: object) -> Pod:
    """A pod of a team, on a node or pending."""
    made = pod(name, on, tuple(range(gpus)) if on else (), wants=gpus, **fields)
    return replace(made, namespace=team)


def test_a_namespace_that_holds_all_gpus_while_another_one_waits_is_a_monopoly() -> None:
    assert monopolies(node("n1", 8), of("team-a", "train", on="n1"), of("team-b", "eval", 2)) == [
        AntiPattern(
            code=AntiPatternCode.MONOPOLY,
            subject="team-a",
            text="namespace team-a holds 100% of the 8 GPUs; team-b has pending work below its share",
            evidence={"holds": 8.0, "share": 4.0, "of": 8, "others wait for": 2.0},
            gpus=4.0,
            cost_per_day=pytest.approx(4 * 2.0 * 24),  # type: ignore[arg-type]
            fix=NAMESPACE_FIX,
        )
    ]


def test_it_stands_on_the_dashboard_too() -> None:
    snapshot = world((node("n1", 8), of("team-a", "train", on="n1"), of("team-b", "eval", 2)))
    (one,) = (one for one in alerts(snapshot) if one.trouble is AlertKind.MONOPOLY)
    assert one.text == "namespace team-a holds 100% of the 8 GPUs; team-b has pending work below its share"


NONE: dict[str, tuple[Object, ...]] = {
    "nobody waits": (of("team-a", "train", on="n1"),),
    "only the holder waits": (of("team-a", "train", on="n1"), of("team-a", "more", 4)),
    "most is idle": (of("team-a", "train", 4, on="n1"), of("team-b", "eval", 8)),
    "what waits asks for no GPU": (of("team-a", "train", on="n1"), of("team-b", "eval", 0)),
    "the other one has its share": (
        of("team-a", "train", 8, on="n1"),
        of("team-b", "eval", 8, on="n2"),
        of("team-b", "more", 8),
    ),
}


@pytest.mark.parametrize("things", NONE.values(), ids=NONE.keys())
def test_no_monopoly(things: tuple[Object, ...]) -> None:
    assert monopolies(node("n1", 8), node("n2", 8), *things) == []


def test_what_would_fit_into_an_idle_node_waits_for_another_reason() -> None:
    held = [of("team-a", f"train-{number}", on=f"n{number}") for number in range(4)]
    nodes = [node(f"n{number}", 8) for number in range(5)]
    assert monopolies(*nodes, *held, of("team-b", "eval", 8)) == []
    busy: list[Node] = [*nodes[:4], node("n4", 4)]
    assert [one.subject for one in monopolies(*busy, *held, of("team-b", "eval", 8))] == ["team-a"]


def test_mig_instances_are_counted_as_well() -> None:
    profile = "nvidia.com/mig-1g.10gb"
    mig = Node(name="m1", capacity={profile: 7}, allocatable={profile: 7})

    def instance(team: str, name: str, on: str = "") -> Pod:
        made = of(team, name, 0, on)
        container = replace(made.template.containers[0], requests={profile: 1})
        return replace(made, template=replace(made.template, containers=(container,)), gpus=())

    things: list[Object] = [
        mig,
        *(instance("team-a", f"w{number}", "m1") for number in range(7)),
        instance("team-b", "late"),
    ]
    assert [(one.subject, one.evidence["holds"]) for one in monopolies(*things)] == [("team-a", 7.0)]


def test_a_queue_of_volcano_that_holds_all_while_another_one_deserves_half() -> None:
    queues: tuple[Object, ...] = (VolcanoQueue(name="a", weight=1), VolcanoQueue(name="b", weight=1))
    groups: list[Object] = [
        PodGroup(namespace="t", name=name, queue=name, phase=phase)
        for name, phase in (("a", "Running"), ("b", "Inqueue"))
    ]
    things = (*queues, *groups, of("t", "a-0", on="n1", gang="a"), of("t", "b-0", 4, gang="b"))
    (one,) = monopolies(node("n1", 8), *things)
    assert (one.subject, one.text) == ("a", "queue a holds 100% of the 8 GPUs; b has pending work below its share")
    assert one.evidence == {"holds": 8.0, "share": 4.0, "of": 8, "others wait for": 4.0}


def test_a_queue_of_kai_that_holds_all_within_its_quota_is_no_monopoly() -> None:
    def cluster(quota: float) -> tuple[Object, ...]:
        queues: tuple[Object, ...] = (
            KaiQueue(name="a", gpu=QueueResource(limit=-1, quota=quota)),
            KaiQueue(name="b", gpu=QueueResource(limit=-1, quota=8 - quota)),
        )
        labels = {name: {"kai.scheduler/queue": name} for name in "ab"}
        return (
            node("n1", 8),
            *queues,
            of("t", "a-0", on="n1", labels=labels["a"]),
            of("t", "b-0", 4, labels=labels["b"]),
        )

    assert [one.subject for one in monopolies(*cluster(4))] == ["a"]
    assert monopolies(*cluster(8)) == []


def test_where_pods_may_not_be_read_nothing_is_said() -> None:
    things = (node("n1", 8), of("team-a", "train", on="n1"), of("team-b", "eval", 2))
    assert found(world(things, seen=unseen(Pod))) == []
    assert GPU in things[0].allocatable


def shared(*, held: int = 16, asked: int = 4, namespaces: tuple[str, ...] = ("lab", "web")) -> Snapshot:
    """One ClusterQueue of 16 GPUs for several namespaces: `lab` holds some, the last one waits for some."""
    doors = [LocalQueue(name="lq", namespace=name, cluster_queue="pool") for name in namespaces]
    work = [
        *([running("train", "lab/lq", held, "pool")] if held else []),
        *([waiting("eval", f"{namespaces[-1]}/lq", asked)] if asked else []),
    ]
    return world((node("n1", 16), A100, cluster_queue("pool", quota=Quota(16)), *doors, *work))


def test_a_namespace_that_holds_a_shared_cluster_queue_while_another_one_waits_is_a_monopoly() -> None:
    assert found(shared()) == [
        AntiPattern(
            code=AntiPatternCode.MONOPOLY,
            subject="pool",
            table="cluster_queues",
            text="namespace lab holds 100% of the 16 GPUs of ClusterQueue pool; "
            "web has pending work below an equal part",
            evidence={"namespace": "lab", "holds": 16, "equal part": 8.0, "of": 16, "others wait for": 4},
            gpus=8.0,
            cost_per_day=pytest.approx(8 * 2.0 * 24),  # type: ignore[arg-type]
            fix="give each namespace its own ClusterQueue in one cohort, or use admission fair sharing",
        )
    ]


@pytest.mark.parametrize(
    "snapshot",
    [
        shared(asked=0),
        shared(held=13, asked=3),
        shared(held=12, asked=5),
        shared(namespaces=("lab",)),
    ],
    ids=["nobody waits", "there is quota left", "it holds less than most", "one namespace only"],
)
def test_a_shared_cluster_queue_without_a_monopoly(snapshot: Snapshot) -> None:
    assert found(snapshot) == []


def test_unqueued_work_that_holds_all_gpus_while_admitted_work_of_kueue_has_no_node_is_a_monopoly() -> None:
    """Jobs without the queue-name label pass Kueue by: its quota says that there is room, and no node has any."""
    things = (
        node("n1", 8),
        of("rogue", "free", on="n1"),
        running("good", "speech/lq", 4, "pool"),
        of("speech", "good-0", 4, workload="speech/good"),
    )
    (one,) = monopolies(*things)
    assert (one.subject, one.text, one.evidence["others wait for"]) == (
        "rogue",
        "namespace rogue holds 100% of the 8 GPUs; speech has pending work below its share",
        4.0,
    )


def test_what_kueue_admitted_is_no_monopoly_of_unqueued_work() -> None:
    things = (
        node("n1", 8),
        running("train", "lab/lq", 8, "pool"),
        of("lab", "train-0", on="n1", workload="lab/train"),
        of("web", "eval", 4),
    )
    assert monopolies(*things) == []
