"""The dashboard: GPUs, who waits, the last hour, and what needs attention."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.health.alerts import Alert, AlertKind, alerts
from gpuconsole.insight.index.fragmentation import LargestGang
from gpuconsole.insight.overview import (
    BINS,
    GpuTotals,
    LastHour,
    UnitTotals,
    Waiting,
    dashboard,
    gpu_totals,
    last_hour,
    waiting,
)
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueuePreemption, LocalQueue, Quota, ResourceFlavor, StopPolicy
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import KEPT
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.ui.paint import painted
from gpuconsole.ui.screens.dashboard import lately_lines
from tests.support.snapshots import (
    A100,
    ORG,
    ORG_QUEUES,
    START,
    cluster_queue,
    cohort,
    group,
    node,
    pod,
    running,
    world,
)
from tests.support.snapshots import waiting as waits

HEAD = "couldn't assign flavors to pod set main: "
SHORT = HEAD + "insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed"
PLACED: list[Object] = [
    *ORG,
    node("node-1"),
    node("node-2"),
    node("node-3"),
    pod("llm-ft", "node-1", (0, 1, 2, 3), workload="research/llm-ft"),
    pod("embed", "node-1", (4, 5), workload="research/embed"),
    pod("serve", "node-2", tuple(range(8)), workload="prod/serve"),
    pod("rlhf-0", "node-1", (6, 7), workload="research/rlhf", index=0),
    pod("rlhf-1", "node-3", (0, 1, 2, 3), workload="research/rlhf", index=1),
]


def test_the_drawn_dashboard() -> None:
    snapshot = world([*PLACED, waits("rlhf-2", "research/lq", 6, SHORT, minutes_ago=12)])
    numbers = dashboard(snapshot)

    assert numbers.gpus == GpuTotals(
        total=24,
        in_use=20,
        borrowed=4,
        idle=4,
        held=0,
        faulty=0,
        units=(UnitTotals(WHOLE_GPU, 24, 20, 4),),
        largest_gang=LargestGang(
            flavor="a100",
            model="a100-80gb",
            unit="GPU",
            pods=2,
            gpus=2,
            by_nodes=2,
            by_quota=2,
            queue="cq-prod",
        ),
    )
    assert numbers.waiting == Waiting(
        workloads=1,
        oldest="research/rlhf-2",
        oldest_since=START - 12 * MINUTE,
        codes={PendingReason.QUOTA: 1},
        units={WHOLE_GPU: 6},
    )
    assert (numbers.waiting.by_quota, numbers.waiting.by_nodes) == (1, 0)
    assert [root.name for root in numbers.queues] == ["org-cohort"]
    assert [one.text for one in numbers.attention] == [
        "research/rlhf runs on 4 borrowed GPUs; cq-prod can reclaim them"
    ]


def test_the_states_of_gpus_sum_up_to_all_of_them() -> None:
    objects: list[Object] = [
        node("whole", 8),
        node("down", 4, ready=False),
        node("cordoned", 4, unschedulable=True),
        node("other", 2, labels={"accelerator": "nvidia-l4"}),
        pod("g-0", "whole", (0,), gang="g"),
        pod("g-1", gang="g", wants=1),
        pod("p", "whole", (1,)),
    ]
    totals = gpu_totals(world(objects))

    assert (totals.total, totals.in_use, totals.held, totals.faulty, totals.idle) == (18, 1, 5, 4, 8)
    gang = totals.largest_gang
    assert gang is not None
    assert (gang.pods, gang.gpus, gang.model) == (3, 2, "a100-80gb")


def test_who_waits_is_counted_by_reason() -> None:
    snapshot = world(
        [
            *ORG_QUEUES,
            waits("a", "prod/lq", 2, SHORT, minutes_ago=3),
            waits("b", "prod/lq", 2, SHORT.replace("insufficient unused quota", "?"), minutes_ago=2),
            waits("c", "research/lq", 4, minutes_ago=3),
            waits("d", "nowhere/lq", 1, "LocalQueue lq doesn't exist"),
            waits("e", "prod/lq", 1, active=False),
            running("w", "prod/lq", 4, "cq-prod"),
            pod("w-0", workload="prod/w", gang="prod/w"),
            pod("w-1", workload="prod/w", gang="prod/w"),
            pod("lone", wants=1),
            pod("gated", wants=1, gates=("kueue.x-k8s.io/admission",)),
            pod("leaving", wants=1, deleted=True),
            pod("left", wants=1, workload="prod/a"),
        ]
    )

    found = waiting(snapshot)
    assert found.in_all == found.by_quota + found.otherwise + found.checking + found.by_nodes == 6
    assert found == Waiting(
        workloads=4,
        oldest="prod/a",
        oldest_since=START - 3 * MINUTE,
        codes={
            PendingReason.QUOTA: 1,
            PendingReason.OTHER: 1,
            PendingReason.QUEUED: 1,
            PendingReason.QUEUE_MISSING: 1,
            PendingReason.GANG: 1,
            PendingReason.NODES: 1,
        },
        by_nodes=2,
        units={WHOLE_GPU: 10},
    )


def line(minutes_ago: int, what: HistoryEventKind, **fields: object) -> HistoryEvent:
    return HistoryEvent(time=START - minutes_ago * MINUTE, what=what, **fields)  # type: ignore[arg-type]


def test_the_last_hour_is_binned_and_each_loss_counts_once() -> None:
    history = [
        line(61, HistoryEventKind.ADMITTED),
        line(59, HistoryEventKind.ADMITTED),
        line(31, HistoryEventKind.PREEMPTED, lost_gpu_seconds=7200, cost=4.42),
        line(31, HistoryEventKind.EVICTED, lost_gpu_seconds=7200, cost=4.42),
        line(5, HistoryEventKind.POD_FAILED, lost_gpu_seconds=1800, cost=1.0),
        line(2, HistoryEventKind.FINISHED),
        line(0, HistoryEventKind.ADMITTED),
        line(0, HistoryEventKind.ADMITTED),
    ]

    assert last_hour(history, START) == LastHour(
        admitted=3,
        admitted_bins=(1, *[0] * (BINS - 2), 2),
        preempted=1,
        preempted_bins=(*[0] * 5, 1, *[0] * 6),
        lost_gpu_hours=2.5,
        cost=5.42,
        losses=2,
        time=START,
        since=START - HOUR,
    )


def test_losses_that_nobody_knows_are_counted_and_not_taken_for_none() -> None:
    history = [
        line(31, HistoryEventKind.PREEMPTED, lost_unknown=True),
        line(31, HistoryEventKind.EVICTED, lost_unknown=True),
        line(20, HistoryEventKind.EVICTED, lost_gpu_seconds=3600),
        line(10, HistoryEventKind.EVICTED, lost_gpu_seconds=3600, cost=2.0),
    ]
    found = last_hour(history, START)
    assert (found.lost_gpu_hours, found.cost, found.losses, found.unknown, found.unpriced) == (2.0, 2.0, 3, 1, 2)
    assert "".join(text for text, _ in painted(lately_lines(found)[2])) == "lost     at least 2.0 GPU-h at least $2.00"
    alone = last_hour(history[:2], START)
    assert "".join(text for text, _ in painted(lately_lines(alone)[2])) == "lost     unknown GPU-h cost unknown"


def test_lines_that_do_not_reach_back_an_hour_make_the_window_shorter() -> None:
    full = [line(20, HistoryEventKind.PENDING)] * KEPT

    found = last_hour(full, START)
    assert (found.since, found.whole) == (full[0].time, False)
    assert last_hour([line(90, HistoryEventKind.PENDING), *full], START).whole
    assert last_hour([line(20, HistoryEventKind.PENDING)], START).whole


def on_l4(workload: Workload) -> Workload:
    """The same workload in flavor l4."""
    assert workload.admission is not None
    part = replace(workload.admission.pod_sets[0], flavors={GPU: "l4"})
    return replace(workload, admission=replace(workload.admission, pod_sets=(part,)))


TROUBLES: dict[str, tuple[list[Object], list[tuple[AlertKind, str]]]] = {
    "nothing is wrong": ([*ORG_QUEUES, node("n"), pod("p", "n", (0,))], []),
    "a lender that never reclaims is no threat": (
        [
            A100,
            cluster_queue("a", "c", Quota(4)),
            cluster_queue("b", "c", Quota(4), preemption=ClusterQueuePreemption()),
            running("w", "ns/lq", 6, "a"),
        ],
        [],
    ),
    "several borrowers of one queue are one line": (
        [
            A100,
            cluster_queue("a", "c", Quota(0)),
            cluster_queue("b", "c", Quota(4)),
            cluster_queue("d", "c", Quota(4)),
            running("v", "ns/lq", 2, "a"),
            running("w", "ns/lq", 3, "a"),
        ],
        [(AlertKind.RECLAIMABLE, "a: 2 workloads run on 5 borrowed GPUs; b and d can reclaim them")],
    ),
    "who lends another flavor is not named, nor the borrower itself": (
        [
            A100,
            ResourceFlavor(name="l4"),
            cluster_queue("a", "c", resource_groups=(group({"a100": Quota(0), "l4": Quota(4)}),)),
            cluster_queue("b", "c", resource_groups=(group({"a100": Quota(4), "l4": Quota(0)}),)),
            cluster_queue("d", "c", resource_groups=(group({"a100": Quota(0), "l4": Quota(0)}),)),
            running("w", "ns/lq", 1, "a"),
            on_l4(running("v", "ns/lq", 2, "d")),
        ],
        [
            (AlertKind.RECLAIMABLE, "ns/v runs on 2 borrowed GPUs; a can reclaim them"),
            (AlertKind.RECLAIMABLE, "ns/w runs on 1 borrowed GPU; b can reclaim it"),
        ],
    ),
    "what is of the cohort's own pool nobody takes back": (
        [
            A100,
            cohort("c", quota=Quota(3)),
            cluster_queue("a", "c", Quota(0)),
            cluster_queue("b", "c", Quota(4)),
            running("w", "ns/lq", 4, "a"),
        ],
        [(AlertKind.RECLAIMABLE, "ns/w runs on 4 borrowed GPUs; b can reclaim 1 of them")],
    ),
    "a node is down": (
        [node("n", ready=False)],
        [(AlertKind.NODE_DOWN, "n is NotReady: 8 GPUs unavailable")],
    ),
    "a node is idle, and since when": (
        [node("n"), pod("p", "n", (0,), phase=PodPhase.SUCCEEDED, finished=START - 32 * MINUTE)],
        [(AlertKind.IDLE_NODE, "n: 8 GPUs idle for 32m")],
    ),
    "many idle nodes are one line": (
        [node(f"n{number}") for number in range(6)],
        [(AlertKind.IDLE_NODE, "6 nodes with 48 GPUs idle")],
    ),
    "GPUs are idle while somebody wants them": (
        [*ORG_QUEUES, node("n"), waits("w", "prod/lq", 2)],
        [(AlertKind.IDLE_GPUS, "8 GPUs on 1 node idle while 2 are requested")],
    ),
    "someone waits for long": (
        [*ORG_QUEUES, waits("w", "prod/lq", 2, minutes_ago=95)],
        [(AlertKind.LONG_WAIT, "cq-prod: 1 pending, the oldest for 1h35m")],
    ),
    "a queue without a selector": (
        [
            A100,
            cluster_queue("shut", "", Quota(4), namespace_selector=None),
            LocalQueue(namespace="ns", name="lq", cluster_queue="shut"),
            waits("w", "ns/lq", 2),
        ],
        [
            (
                AlertKind.QUEUE_INACTIVE,
                "shut: admits no workload: without a namespaceSelector it matches no namespace ({} matches all); "
                "1 pending workload",
            )
        ],
    ),
    "a stopped queue matters when somebody waits": (
        [
            A100,
            replace(cluster_queue("held", "", Quota(4)), stop_policy=StopPolicy.HOLD),
            replace(cluster_queue("held-empty", "", Quota(4)), stop_policy=StopPolicy.HOLD),
            LocalQueue(namespace="ns", name="lq", cluster_queue="held"),
            waits("w", "ns/lq", 2),
        ],
        [(AlertKind.QUEUE_INACTIVE, "held: it is stopped (Hold); 1 pending workload")],
    ),
    "half-placed jobs that wait for each other": (
        [
            node("n", 4),
            pod("a-0", "n", (0, 1), job="Job/t/a", gang="Job/t/a", gang_size=2),
            pod("a-1", job="Job/t/a", gang="Job/t/a", gang_size=2, wants=2),
            pod("b-0", "n", (2, 3), job="Job/t/b", gang="Job/t/b", gang_size=2),
            pod("b-1", job="Job/t/b", gang="Job/t/b", gang_size=2, wants=2),
        ],
        [
            (
                AlertKind.DEADLOCK,
                "Deadlock: 2 partially scheduled gangs hold 4 GPUs: "
                "Job/t/a holds 2 GPUs and needs 2 more; Job/t/b holds 2 GPUs and needs 2 more",
            ),
            (AlertKind.GANG, "Job/t/a: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs"),
            (AlertKind.GANG, "Job/t/b: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs"),
        ],
    ),
    "half-placed, but there is room for one of them": (
        [
            node("n", 8),
            pod("a-0", "n", (0, 1), gang="a", gang_size=2),
            pod("a-1", gang="a", gang_size=2, wants=2),
            pod("b-0", "n", (2, 3), gang="b", gang_size=2),
            pod("b-1", gang="b", gang_size=2, wants=2),
        ],
        [
            (AlertKind.GANG, "team/a: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs"),
            (AlertKind.GANG, "team/b: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs"),
        ],
    ),
    "one half-placed job alone is no deadlock": (
        [
            node("n", 4),
            pod("a-0", "n", (0, 1), gang="a", gang_size=2),
            pod("a-1", gang="a", gang_size=2, wants=2),
            pod("p", "n", (2, 3)),
        ],
        [(AlertKind.GANG, "team/a: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs")],
    ),
    "gangs of which as many run as are needed do not wait whole, whatever of them waits": (
        [
            node("n", 4),
            pod("a-0", "n", (0, 1), gang="a", gang_size=1),
            pod("a-1", gang="a", gang_size=1, wants=2),
            PodGroup(namespace="team", name="b", min_member=1),
            pod("b-0", "n", (2, 3), gang="b"),
            pod("b-1", gang="b", wants=2),
        ],
        [],
    ),
    "a gang needs no more than its least, the smallest first": (
        [
            node("n", 4),
            pod("a-0", "n", (0, 1), gang="a", gang_size=2),
            *(pod(f"a-{wants}", gang="a", gang_size=2, wants=wants) for wants in (8, 2)),
            PodGroup(namespace="team", name="b", min_member=2),
            pod("b-0", "n", (2, 3), gang="b"),
            *(pod(f"b-{wants}", gang="b", wants=wants) for wants in (1, 8)),
        ],
        [
            (
                AlertKind.DEADLOCK,
                "Deadlock: 2 partially scheduled gangs hold 4 GPUs: "
                "team/a holds 2 GPUs and needs 2 more; team/b holds 2 GPUs and needs 1 more",
            ),
            (AlertKind.GANG, "team/a: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs"),
            (AlertKind.GANG, "team/b: partially scheduled gang, 1 of 2 pods placed, holding 2 GPUs"),
        ],
    ),
    "a gang that waits longer than a minute": (
        [node("n", 2), pod("p", "n", (0,)), pod("a-0", gang="a", gang_size=1, wants=4, created=START - 2 * MINUTE)],
        [(AlertKind.GANG, "team/a: gang not scheduled, 0 of 1 pods placed")],
    ),
}


@pytest.mark.parametrize(("objects", "want"), TROUBLES.values(), ids=TROUBLES.keys())
def test_what_needs_attention(objects: list[Object], want: list[tuple[AlertKind, str]]) -> None:
    assert [(one.trouble, one.text) for one in alerts(world(objects))] == want


def test_a_line_leads_to_its_object_and_the_pressing_ones_come_first() -> None:
    snapshot = world([*PLACED, node("idle"), node("down", 4, ready=False)])

    assert alerts(snapshot) == (
        Alert(
            trouble=AlertKind.NODE_DOWN,
            text="down is NotReady: 4 GPUs unavailable",
            table="nodes",
            key="down",
            gpus=4,
        ),
        Alert(
            trouble=AlertKind.RECLAIMABLE,
            text="research/rlhf runs on 4 borrowed GPUs; cq-prod can reclaim them",
            table="workloads",
            key="research/rlhf",
            gpus=4,
        ),
        Alert(trouble=AlertKind.IDLE_NODE, text="idle: 8 GPUs idle", table="nodes", key="idle", gpus=8),
    )


def test_a_workload_that_goes_in_circles_is_named() -> None:
    lost = {"workload": "research/rlhf", "lost_gpu_seconds": 3600.0}
    history = [
        line(minutes, what, **lost)
        for minutes in (50, 30, 10)
        for what in (HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
    ]

    assert alerts(world(list(ORG_QUEUES)), history) == (
        Alert(
            trouble=AlertKind.THRASH,
            text="research/rlhf: preemption loop, preempted 3 times in recent events, 3.0 GPU-hours lost",
            table="workloads",
            key="research/rlhf",
        ),
    )
