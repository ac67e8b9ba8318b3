"""The queue picker, costs and timelines."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import EvictionLoss, hourly, loss_if_evicted, node_hourly
from gpuconsole.insight.index.available_quota import DeviceChoice, FlavorHeadroom, Headroom, headroom
from gpuconsole.insight.timeline import Moment, timeline
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import LocalQueue, Quota, ResourceFlavor, StopPolicy
from gpuconsole.model.workloads import Condition, Workload
from tests.support.snapshots import A100, ORG, ORG_QUEUES, START, cluster_queue, group, node, running, waiting, world


def test_the_picker_shows_what_each_queue_could_still_take() -> None:
    assert headroom(world([*ORG, waiting("w", "research/lq", 6)])) == (
        Headroom(
            namespace="prod",
            name="lq",
            cluster_queue="cq-prod",
            flavors=(FlavorHeadroom("a100", 4, 4, 16),),
            pending=0,
            problem="",
        ),
        Headroom(
            namespace="research",
            name="lq",
            cluster_queue="cq-research",
            flavors=(FlavorHeadroom("a100", 4, 0, 16),),
            pending=1,
            problem="",
        ),
    )


def test_the_picker_has_every_door_and_knows_its_roomiest_flavor() -> None:
    groups = (group({"a100": Quota(8), "l4": Quota(2)}), group({"cpu": Quota(1000)}, "cpu"))
    objects: list[Object] = [
        cluster_queue("q", "", resource_groups=groups),
        LocalQueue(namespace="a", name="lq", cluster_queue="q"),
        LocalQueue(namespace="b", name="lq", cluster_queue="q"),
    ]
    found = headroom(world(objects))

    assert [(one.key, one.best(DeviceChoice()), [flavor.flavor for flavor in one.flavors]) for one in found] == [
        ("a/lq", 8, ["a100", "l4"]),
        ("b/lq", 8, ["a100", "l4"]),
    ]


PROBLEMS: dict[str, tuple[list[Object], str]] = {
    "the ClusterQueue is stopped": (
        [replace(cluster_queue("q", "", Quota(8)), stop_policy=StopPolicy.HOLD)],
        "q is stopped (Hold)",
    ),
    "the namespace is not selected": (
        [
            cluster_queue("q", "", Quota(8), namespace_selector=LabelSelector({"team": "a"})),
            Namespace(name="ns", labels={"team": "b"}),
        ],
        "the namespaceSelector of q does not match namespace ns",
    ),
    "the namespace is selected": (
        [
            cluster_queue("q", "", Quota(8), namespace_selector=LabelSelector({"team": "a"})),
            Namespace(name="ns", labels={"team": "a"}),
        ],
        "",
    ),
    "there is no such ClusterQueue": ([], "ClusterQueue q doesn't exist"),
}


@pytest.mark.parametrize(("objects", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_the_picker_says_why_a_queue_admits_nothing(objects: list[Object], want: str) -> None:
    found = headroom(world([A100, LocalQueue(namespace="ns", name="lq", cluster_queue="q"), *objects]))

    assert [one.problem for one in found] == [want]


def test_a_workload_costs_what_its_flavors_cost() -> None:
    spot = ResourceFlavor(name="spot-h100", node_labels={"karpenter.sh/capacity-type": "spot"})
    snapshot = world([A100, spot])
    on_a100 = running("w", "ns/lq", 6, "q", minutes_ago=90)
    assert on_a100.admission is not None
    part = replace(on_a100.admission.pod_sets[0], flavors={"nvidia.com/gpu": "spot-h100"})
    on_spot = replace(on_a100, admission=replace(on_a100.admission, pod_sets=(part,)))

    assert hourly(snapshot, on_a100, Prices()) == pytest.approx(6 * 2.21)
    assert hourly(snapshot, on_spot, Prices()) == pytest.approx(6 * 3.75 * 0.35)
    assert hourly(snapshot, waiting("w", "ns/lq", 6), Prices()) == 0
    assert node_hourly(node("n"), Prices()) == pytest.approx(8 * 2.21)


CHECKPOINTED = Job(namespace="ns", name="w", checkpoint_interval=40 * MINUTE)
LOSSES: dict[str, tuple[list[Object], Workload, float]] = {
    "all of an hour and a half on 6 GPUs": ([], running("w", "ns/lq", 6, "q", minutes_ago=90), 9.0),
    "what came after the last checkpoint": (
        [CHECKPOINTED],
        running("w", "ns/lq", 6, "q", minutes_ago=90, owner=CHECKPOINTED.key),
        1.0,
    ),
    "work begins when all pods run": (
        [],
        running(
            "w",
            "ns/lq",
            6,
            "q",
            conditions=(
                Condition("QuotaReserved", True, since=START - 2 * HOUR),
                Condition("Admitted", True, since=START - 2 * HOUR),
                Condition("PodsReady", True, since=START - HOUR),
            ),
        ),
        6.0,
    ),
    "a bare workload says it by annotation": (
        [],
        running(
            "w",
            "ns/lq",
            6,
            "q",
            minutes_ago=90,
            annotations={"gpuconsole.io/checkpoint-interval": "1h"},
        ),
        3.0,
    ),
    "nothing while it waits": ([], waiting("w", "ns/lq", 6, minutes_ago=90), 0.0),
}


@pytest.mark.parametrize(("objects", "subject", "hours"), LOSSES.values(), ids=LOSSES.keys())
def test_an_eviction_loses_what_is_not_saved(objects: list[Object], subject: Workload, hours: float) -> None:
    loss = loss_if_evicted(world([A100, *objects, subject]), subject, Prices())

    assert loss == EvictionLoss(hours, pytest.approx(hours * 2.21) if hours else 0.0)  # type: ignore[arg-type]


def happened(seconds: int, what: HistoryEventKind, **fields: object) -> HistoryEvent:
    return HistoryEvent(time=START + seconds * SECOND, what=what, **{"workload": "research/rlhf", **fields})  # type: ignore[arg-type]


HISTORY = [
    happened(0, HistoryEventKind.SUBMITTED),
    happened(1, HistoryEventKind.PENDING, reason="Pending", message="too little"),
    happened(5, HistoryEventKind.PENDING, reason="Pending", message="too little still"),
    happened(60, HistoryEventKind.ADMITTED, queue="cq-research", flavor="a100", waited=MINUTE, gpus=6),
    happened(65, HistoryEventKind.STARTED),
    happened(65, HistoryEventKind.POD_BOUND, pod="research/rlhf-0"),
    happened(70, HistoryEventKind.ADMITTED, workload="other/one"),
    happened(
        3600, HistoryEventKind.PREEMPTED, by="prod/serve-2", reason="InCohortReclamation", message="Preempted to …"
    ),
    happened(3600, HistoryEventKind.EVICTED, reason="Preempted", lost_gpu_seconds=6 * 3540, cost=13.0, gpus=6),
    happened(4000, HistoryEventKind.PREEMPTED, workload="dev/notebook", by="research/rlhf", reason="InClusterQueue"),
]


def test_a_job_without_a_workload_runs_as_soon_as_enough_of_its_pods_do() -> None:
    began = happened(0, HistoryEventKind.STARTED, workload="VolcanoJob/research/train")
    (moment,) = timeline(world([], recent=[began]), "VolcanoJob/research/train")
    assert moment.title == "running"


def test_a_timeline_tells_a_life_in_order() -> None:
    snapshot = world([], recent=HISTORY)

    assert [(m.title, m.detail, m.after // SECOND) for m in timeline(snapshot, "research/rlhf")] == [
        ("submitted", "", 0),
        ("pending", "Pending", 1),
        ("admitted", "cq-research on a100 after 1m", 59),
        ("all pods run", "", 5),
        ("preempted", "by prod/serve-2 (reclaim in cohort)", 3535),
        ("evicted", "Preempted, 5.9 GPU-hours lost", 0),
        ("preempts", "dev/notebook (priority in the queue)", 400),
    ]


def test_where_history_does_not_reach_the_object_fills_in() -> None:
    subject = running("w", "prod/lq", 4, "cq-prod", minutes_ago=30)
    late = [happened(0, HistoryEventKind.EVICTED, workload="prod/w", reason="NodeFailures")]

    assert timeline(world([*ORG_QUEUES, subject]), "prod/w", late) == (
        Moment(time=START - 30 * MINUTE, title="submitted", detail="lq"),
        Moment(time=START - 30 * MINUTE, title="quota reserved"),
        Moment(time=START - 30 * MINUTE, title="admitted"),
        Moment(time=START - 30 * MINUTE, title="all pods run"),
        Moment(time=START, title="evicted", detail="NodeFailures", what=HistoryEventKind.EVICTED, after=30 * MINUTE),
    )


def test_an_unknown_workload_has_no_timeline() -> None:
    assert timeline(world([]), "ns/gone") == ()
