"""Anti-patterns: what is found, what shows it, what it costs a day, and that what is in order is left alone."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.health.antipatterns import AntiPattern, AntiPatternCode, antipatterns, total_per_day
from gpuconsole.insight.linting import LintEngines
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import Cohort, LocalQueue, Quota
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.model.workloads import Condition
from gpuconsole.ui.answers.cluster_reports import antipatterns_lines
from tests.support.snapshots import A100, START, cluster_queue, node, pod, running, waiting, world

TWO_DOLLARS = Prices(gpu_hour={}, other=2.0)
DOOR = LocalQueue(namespace="team", name="lq", cluster_queue="cq")
UNQUEUED = LintEngines(unqueued=True)


def found(
    *things: Object, history: tuple[HistoryEvent, ...] = (), engines: LintEngines = UNQUEUED
) -> list[AntiPattern]:
    """Without quota, unless a test wants that looked at; averages have tests of their own (test_utilization)."""
    every = antipatterns(world(things), TWO_DOLLARS, history, engines)
    return [one for one in every if one.code is not AntiPatternCode.LOW_UTILIZATION]


def codes(*things: Object, **how: Any) -> list[str]:
    return [one.code.value for one in found(*things, **how)]


def measured(sm: float, idle_minutes: int | None = None) -> NodeTelemetry:
    idle = START - idle_minutes * MINUTE if idle_minutes is not None else None
    return NodeTelemetry(
        name="n1",
        time=START,
        source="http://p",
        lasts=90_000_000,
        devices=tuple(MeasuredDevice(gpu=number) for number in range(4)),
        columns={GpuMetric.SM: (sm / 100,) * 4, GpuMetric.UTILISATION: (sm,) * 4},
        idle=(idle,) * 4,
    )


def team(minutes: int = 120, nominal: int = 8) -> tuple[Object, ...]:
    """A workload that has had four GPUs of a node for some minutes."""
    began = START - minutes * MINUTE
    return (
        A100,
        cluster_queue("cq", "c", Quota(nominal)),
        cluster_queue("other", "c", Quota(8)),
        DOOR,
        node("n1", 4),
        running("w", "team/lq", 4, "cq", minutes_ago=minutes),
        pod("w-0", "n1", (0, 1, 2, 3), workload="team/w", bound=began, started=began),
    )


def test_few_multiprocessors_at_work_are_a_request_too_large_and_what_lies_idle_is_its_price() -> None:
    assert found(*team(), measured(5)) == [
        AntiPattern(
            code=AntiPatternCode.OVERSIZED,
            subject="team/w",
            table="workloads",
            text="team/w: SM activity 5% on 4 GPUs, below 10%",
            evidence={"GPUs": 4, "SM percent": 5.0, "threshold": 10.0},
            gpus=4 * 0.95,
            cost_per_day=pytest.approx(4 * 2.0 * 24 * 0.95),  # type: ignore[arg-type]
            fix="request fewer GPUs, a MIG instance or a shared GPU; or fix the input pipeline",
            since=START - 120 * MINUTE,
        )
    ]


def test_who_has_just_begun_or_uses_ten_percent_is_left_alone() -> None:
    assert codes(*team(minutes=29), measured(5)) == []
    assert codes(*team(), measured(10)) == []
    assert codes(*team()) == []


def test_gpus_that_nobody_uses_are_idle_and_not_oversized_as_well() -> None:
    (one,) = found(*team(), measured(0, idle_minutes=45))
    assert (one.code, one.gpus, one.cost_per_day, one.evidence) == (
        AntiPatternCode.IDLE,
        4,
        4 * 2.0 * 24,
        {"GPUs": 4, "borrowed": 0, "idle for": "45m"},
    )


def test_idle_and_borrowed_is_worse() -> None:
    (one,) = found(*team(nominal=1), measured(0, idle_minutes=45))
    assert (one.code, one.text) == (
        AntiPatternCode.BORROWED_IDLE,
        "team/w: 4 GPUs allocated but idle for 45m; 3 of them borrowed",
    )


def test_half_gangs_that_wait_for_each_other() -> None:
    def gang(name: str, first: int) -> tuple[Object, ...]:
        member: dict[str, Any] = {"job": f"Job/team/{name}", "gang": name, "gang_size": 2}
        return pod(f"{name}-0", "n1", (first, first + 1), **member), pod(f"{name}-1", wants=2, **member)

    (one,) = found(node("n1", 4), *gang("a", 0), *gang("b", 2))
    assert (one.code, one.gpus, one.cost_per_day) == (AntiPatternCode.DEADLOCK, 4, 4 * 2.0 * 24)
    assert one.evidence == {"Job/team/a": "holds 2 GPUs, needs 2 more", "Job/team/b": "holds 2 GPUs, needs 2 more"}


def monopoly(quota: Quota) -> tuple[Object, ...]:
    return (
        A100,
        cluster_queue("cq", "c", Quota(2)),
        cluster_queue("poor", "c", quota),
        DOOR,
        LocalQueue(namespace="poor", name="lq", cluster_queue="poor"),
        running("w", "team/lq", 10, "cq"),
        waiting("v", "poor/lq", 4),
        node("n1", 8),
        node("n2", 4),
    )


def test_one_queue_that_holds_nearly_all_while_another_waits_below_its_quota() -> None:
    (one,) = (each for each in found(*monopoly(Quota(10))) if each.code is AntiPatternCode.MONOPOLY)
    assert (one.subject, one.gpus, one.cost_per_day) == ("cq", 8, 8 * 2.0 * 24)
    assert one.text == "cq holds 83% of the GPUs of c; pending below nominal quota: poor"
    assert one.evidence == {"holds": 10, "owns": 2, "of": 12, "others wait for": 4}
    assert "monopoly" not in codes(*monopoly(Quota(10))[:-3], node("n1", 8))


def test_a_queue_that_waits_beyond_its_own_quota_is_no_victim_of_a_monopoly() -> None:
    things = (*monopoly(Quota(0)), cluster_queue("rich", "c", Quota(10)))
    assert "monopoly" not in codes(*things)


def test_idle_gpus_that_the_usual_pods_cannot_use() -> None:
    pods = [pod(f"p{n}", f"n{n}", tuple(range(7))) for n in range(8)]
    (one,) = found(*(node(f"n{n}") for n in range(8)), *pods)
    assert (one.code, one.evidence) == (
        AntiPatternCode.FRAGMENTATION,
        {"idle": 8, "percent": 100, "most on one node": 1},
    )
    assert one.cost_per_day == pytest.approx(8 * 2.0 * 24)


def evicted(victim: str, at: int, queues: tuple[str, str] = ("cq-a", "cq-b")) -> HistoryEvent:
    return HistoryEvent(
        time=START - at * MINUTE,
        what=HistoryEventKind.PREEMPTED,
        workload=victim,
        by="p/x",
        queue=queues[0],
        by_queue=queues[1],
        lost_gpu_seconds=3600,
        cost=2.0,
    )


def test_evictions_in_circles_cost_by_the_day_what_they_cost_in_the_time_that_is_known() -> None:
    history = tuple(evicted("r/a", minutes) for minutes in (120, 100, 80))
    (one,) = found(history=history)
    assert (one.code, one.subject, one.evidence) == (
        AntiPatternCode.THRASH,
        "r/a",
        {"preemptions": 3, "GPU-hours lost": 3.0},
    )
    assert one.cost_per_day == pytest.approx(6.0 * 12)


def test_queues_that_evict_each_other_often() -> None:
    back = ("cq-b", "cq-a")
    history = (evicted("r/a", 300), evicted("r/b", 200, back), evicted("r/c", 100), evicted("r/d", 60, back))
    (one,) = found(history=history)
    assert (one.subject, one.text) == (
        "cq-a",
        "2 queues preempt each other 4 times: cq-a ← cq-b (2×), cq-b ← cq-a (2×)",
    )
    assert found(history=history[:3]) == []


def test_an_eviction_of_a_victim_inside_a_circle_of_queues_is_counted_once_in_the_sum() -> None:
    inside = [evicted("r/a", minutes) for minutes in (120, 100, 80)]
    back = evicted("p/z", 90, ("cq-b", "cq-a"))
    among_themselves = evicted("r/a", 70, ("cq-a", "cq-a"))
    elsewhere = evicted("r/a", 65, ("cq-a", "cq-c"))
    history = sorted([*inside, back, among_themselves, elsewhere], key=lambda line: line.time)
    patterns = found(history=tuple(history))
    assert [(one.subject, round(one.cost_per_day), round(one.shared_cost_per_day)) for one in patterns] == [
        ("r/a", 10 * 12, 6 * 12),
        ("cq-a", 8 * 12, 0),
    ]
    assert total_per_day(patterns) == pytest.approx(6 * 2.0 * 12)
    lines = antipatterns_lines(patterns)
    assert lines[0] == "2 anti-patterns, about $144.00 per day (an eviction in several findings is counted once)"
    assert lines[3] == "  cost      $120.00 per day, of which $72.00 is counted in the preemption loop of its queues"


KUEUE = LintEngines()


def test_what_manifests_show_is_found_in_a_cluster_too() -> None:
    things = (
        A100,
        cluster_queue("cq", quota=Quota(4)),
        cluster_queue("island", quota=Quota(4)),
        DOOR,
        Cohort(name="x", parent="y"),
        Cohort(name="y", parent="x"),
        node("n1", 8),
        waiting("huge", "team/lq", 64),
    )
    patterns = {one.code: one for one in found(*things, engines=KUEUE)}
    assert patterns.keys() >= {
        AntiPatternCode.COHORT_CYCLE,
        AntiPatternCode.UNREACHABLE_QUOTA,
        AntiPatternCode.NEVER_FITS,
    }
    unreachable = patterns[AntiPatternCode.UNREACHABLE_QUOTA]
    assert (unreachable.subject, unreachable.table, unreachable.gpus) == ("island", "cluster_queues", 4)
    assert unreachable.cost_per_day == 4 * 2.0 * 24


def test_a_resource_of_which_its_queue_has_no_quota_never_fits_as_lint_says() -> None:
    mig = replace(node("m1", 8), allocatable={"nvidia.com/mig-1g.10gb": 7})
    asks = waiting("fast", "team/lq", 1)
    template = PodTemplate(containers=(Container(requests={"nvidia.com/mig-1g.10gb": 1}),))
    asks = replace(asks, pod_sets=(replace(asks.pod_sets[0], template=template),))
    things = (A100, cluster_queue("cq", quota=Quota(4)), DOOR, node("n1", 8), mig, asks)
    assert [(one.code, one.subject, one.table, one.text) for one in found(*things, engines=KUEUE)] == [
        (
            AntiPatternCode.NEVER_FITS,
            "team/fast",
            "workloads",
            "Workload/team/fast: ClusterQueue cq has no quota of nvidia.com/mig-1g.10gb: Kueue never admits it",
        )
    ]


def test_what_has_ended_can_never_fit_and_need_not() -> None:
    finished = running("huge", "team/lq", 64, "cq")
    things = (A100, cluster_queue("cq", quota=Quota(64)), DOOR, node("n1", 8))
    assert "never-fits" in codes(*things, finished, engines=KUEUE)
    ended = waiting("huge", "team/lq", 64, conditions=(Condition("Finished", True, "Succeeded", "", START),))
    assert "never-fits" not in codes(*things, ended, engines=KUEUE)


def test_the_dearest_comes_first() -> None:
    patterns = found(*team(), measured(5), *(node(f"m{n}") for n in range(2)), engines=KUEUE)
    assert [one.cost_per_day for one in patterns] == sorted((one.cost_per_day for one in patterns), reverse=True)


def test_those_seen_at_a_glance_are_on_the_dashboard() -> None:
    lazy = {one.trouble: one for one in alerts(world((*team(), measured(5))))}
    assert lazy[AlertKind.OVERSIZED].text == "team/w: SM activity 5% on 4 GPUs, below 10%"
    idle = {one.trouble: one for one in alerts(world((*team(nominal=1), measured(0, idle_minutes=45))))}
    assert idle[AlertKind.GPU_UNUSED].text == "team/w: 4 GPUs allocated but idle for 45m; 3 GPUs borrowed"
    assert AlertKind.OVERSIZED not in idle
    crowd = {one.trouble: one for one in alerts(world(monopoly(Quota(10))))}
    assert (crowd[AlertKind.MONOPOLY].table, crowd[AlertKind.MONOPOLY].key) == ("cluster_queues", "cq")
