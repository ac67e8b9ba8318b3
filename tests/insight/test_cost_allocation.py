"""Costs over time by hand: prices, shares, labels, telemetry, lost work, and hours, each with numbers to check."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import CostAllocator, CostHour, CostKind, CostLabels, CostOwner
from gpuconsole.model.autoscaling import PRICE, SPOT, ZONE, NodeGroup, ProvisionedInstance
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Time
from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import GPU
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.workloads import Admission, PodSetAssignment, Workload
from tests.support.snapshots import START, node, pod, world

TWO = Prices(gpu_hour={}, other=2.0, spot=0.25)


def allocator(*objects: Object, prices: Prices = TWO, labels: CostLabels | None = None) -> CostAllocator:
    return CostAllocator(world(objects), prices, labels or CostLabels())


def rows(costs: CostAllocator, *events: Event, until: Time) -> tuple[CostHour, ...]:
    """The rows up to a time, after these events."""
    for event in events:
        costs.note(event)
    costs.advance(until)
    return costs.drain()


def amounts(found: Sequence[CostHour], *names: str) -> dict[str, Any]:
    """Sums of some amounts by workload, idle capacity under its kind."""
    sums: dict[str, list[float]] = {}
    for row in found:
        name = row.owner.workload or row.owner.kind.value
        known = sums.setdefault(name, [0.0] * len(names))
        for place, amount in enumerate(names):
            known[place] += getattr(row, amount)
    return {
        name: pytest.approx(tuple(known)) if len(names) > 1 else pytest.approx(known[0]) for name, known in sums.items()
    }


def job_pod(name: str, gpus: int = 8, node: str = "n1", first: int = 0, **fields: Any) -> Any:
    return pod(name, node, tuple(range(first, first + gpus)), job=f"Job/team/{name}", **fields)


def workload(name: str, queue: str = "cq", **fields: object) -> Workload:
    admission = Admission(cluster_queue=queue, pod_sets=(PodSetAssignment(),)) if queue else None
    return Workload(namespace="team", name=name, admission=admission, **fields)  # type: ignore[arg-type]


def evicted(
    time: Time, name: str, gpu_seconds: float, what: HistoryEventKind = HistoryEventKind.EVICTED
) -> HistoryEvent:
    return HistoryEvent(time=time, what=what, workload=name, lost_gpu_seconds=gpu_seconds)


@pytest.mark.parametrize(
    ("prices", "gpus", "hours", "usd"),
    [
        (Prices(), 8, 2, 35.36),
        (TWO, 8, 1, 16.0),
        (TWO, 64, 1, 128.0),
    ],
)
def test_the_prices_of_the_seeds(prices: Prices, gpus: int, hours: int, usd: float) -> None:
    machines = [node(f"n{number}") for number in range(gpus // 8)]
    pods = [pod(f"p{number}", f"n{number}", tuple(range(8)), job="Job/team/train") for number in range(gpus // 8)]
    found = rows(allocator(*machines, *pods, prices=prices), until=START + hours * HOUR)
    assert amounts(found, "cost_usd", "gpu_seconds") == {"Job/team/train": (usd, gpus * hours * 3600)}


def test_a_node_of_each_gpu_type_of_the_seeds_costs_83_36_usd_an_hour() -> None:
    types = ("nvidia-a100-80gb", "nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-l4", "nvidia-t4")
    machines = [node(name, labels={"accelerator": name}) for name in types]
    found = rows(allocator(*machines, prices=Prices()), until=START + HOUR)
    assert sum(row.cost_usd for row in found) == pytest.approx(83.36)
    assert {row.owner.gpu_type: row.idle_usd for row in found} == pytest.approx(
        {"a100-80gb": 17.68, "a100-40gb": 13.2, "h100-80gb": 30.0, "l4": 6.48, "t4": 16.0}
    )


def test_unallocated_gpus_are_idle_and_a_row_is_one_utc_hour() -> None:
    found = rows(allocator(node("n1"), job_pod("a", 6)), until=START + 90 * MINUTE)
    owner = CostOwner(
        kind=CostKind.WORKLOAD, workload="Job/team/a", namespace="team", team="team", gpu_type="a100-80gb"
    )
    idle = CostOwner(kind=CostKind.IDLE, gpu_type="a100-80gb")
    assert START % HOUR == 0
    assert set(found) == {
        CostHour(owner=owner, hour=START, gpu_seconds=21600.0, used_usd=12.0),
        CostHour(owner=owner, hour=START + HOUR, gpu_seconds=10800.0, used_usd=6.0),
        CostHour(owner=idle, hour=START, gpu_seconds=7200.0, idle_usd=4.0),
        CostHour(owner=idle, hour=START + HOUR, gpu_seconds=3600.0, idle_usd=2.0),
    }


def test_the_time_before_a_change_is_booked_at_the_old_shares() -> None:
    costs = allocator(node("n1"))
    begin, end = START + 10 * MINUTE + 1, START + 40 * MINUTE + 3
    bound = job_pod("a")
    found = rows(
        costs,
        Applied(begin, bound),
        Applied(end, replace(bound, phase=PodPhase.SUCCEEDED)),
        Deleted(end + MINUTE, "pods", bound.key),
        until=START + HOUR,
    )
    used = 16.0 * (end - begin) / HOUR
    assert amounts(found, "cost_usd") == {"idle": 16.0 - used, "Job/team/a": used}


def test_drained_rows_are_additive_and_nothing_is_drained_twice() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    first, second = rows(costs, until=START + 15 * MINUTE), rows(costs, until=START + 45 * MINUTE)
    assert [row.used_usd for row in (*first, *second)] == pytest.approx([4.0, 8.0])
    assert costs.drain() == ()


def test_a_jump_over_a_month_is_split_into_its_hours() -> None:
    found = rows(allocator(node("n1"), job_pod("a")), until=START + 30 * DAY + MINUTE)
    assert [row.hour for row in found] == [START + number * HOUR for number in range(721)]
    assert {round(row.used_usd, 6) for row in found[:-1]} == {16.0}
    assert found[-1].used_usd == pytest.approx(16 / 60)


def test_a_deleted_node_costs_nothing_any_more() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    found = rows(costs, Deleted(START + 30 * MINUTE, "nodes", "n1"), until=START + HOUR)
    assert amounts(found, "cost_usd") == {"Job/team/a": 8.0}


def test_pods_share_a_node_without_gpus_equally_and_pods_without_gpus_pay_nothing_for_those_of_others() -> None:
    machine = node("cpu", 0, labels={}, annotations={PRICE: "3.0"})
    pods = [pod(name, "cpu", job=f"Job/team/{name}") for name in "abc"]
    beside = pod("d", "n1", job="Job/team/d")
    found = rows(allocator(machine, *pods, node("n1"), beside), until=START + HOUR)
    assert amounts(found, "cost_usd") == {"Job/team/a": 1.0, "Job/team/b": 1.0, "Job/team/c": 1.0, "idle": 16.0}
    assert {row.owner.gpu_type for row in found} == {"cpu", "a100-80gb"}
    assert amounts(rows(allocator(machine), until=START + HOUR), "idle_usd") == {"idle": 3.0}


def test_a_gpu_that_pods_share_is_paid_once() -> None:
    halves = [pod(name, "n1", (0,), wants=0, job=f"Job/team/{name}") for name in "ab"]
    found = rows(allocator(node("n1"), *halves), until=START + HOUR)
    assert amounts(found, "cost_usd") == {"Job/team/a": 1.0, "Job/team/b": 1.0, "idle": 14.0}


def test_pods_that_hold_more_gpus_than_their_node_has_share_its_price() -> None:
    """A node comes back with fewer GPUs than its pods hold."""
    pods = [job_pod("a", 4), job_pod("b", 4, first=4)]
    found = rows(allocator(node("n1", 4), *pods), until=START + HOUR)
    assert amounts(found, "cost_usd", "gpu_seconds") == {"Job/team/a": (4.0, 7200.0), "Job/team/b": (4.0, 7200.0)}


def test_a_replica_of_a_time_sliced_gpu_costs_its_part() -> None:
    labels = {"accelerator": "nvidia-a100-80gb", "nvidia.com/gpu.replicas": "4"}
    found = rows(allocator(node("n1", 8, labels=labels), job_pod("a", 1)), until=START + HOUR)
    assert amounts(found, "cost_usd", "gpu_seconds") == {"Job/team/a": (0.5, 900.0), "idle": (3.5, 6300.0)}


MIG = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": "2"}


def mig_pod(name: str, resource: str) -> Any:
    """A pod of a live cluster, which does not tell the instance."""
    return pod(
        name, "n1", job=f"Job/team/{name}", template=PodTemplate(containers=(Container(requests={resource: 1}),))
    )


def test_a_mig_instance_costs_its_compute_slices_and_a_whole_gpu_beside_it_a_whole_one() -> None:
    """The node has two GPUs: one whole, one with seven instances."""
    offered = {GPU: 1, "nvidia.com/mig-1g.10gb": 7}
    machine = replace(node("n1", labels=MIG), allocatable=offered, capacity=offered)
    notes = {"gpuconsole.io/mig-layout": "- | " + " ".join(f"1g.10gb@{start}" for start in range(7))}
    machine = replace(machine, annotations=notes)
    found = rows(allocator(machine, mig_pod("a", "nvidia.com/mig-1g.10gb"), job_pod("b", 1)), until=START + HOUR)
    assert amounts(found, "cost_usd", "gpu_seconds") == {
        "Job/team/a": (2 / 7, 3600 / 7),
        "Job/team/b": (2.0, 3600.0),
        "idle": (2 * 6 / 7, 3600 * 6 / 7),
    }


def instance(name: str, price: float, **fields: Any) -> ProvisionedInstance:
    return ProvisionedInstance(name=name, type="p4de.24xlarge", price=price, gpus=8, **fields)


def test_an_instance_has_its_own_price_before_its_node_joins_and_until_it_is_gone() -> None:
    launched = instance("n1", 4.0, list_price=10.0, capacity_type=SPOT, zone="b", launched=START + 10 * MINUTE)
    ready = replace(launched, ready=START + 20 * MINUTE)
    leaving = replace(ready, leaving=START + 40 * MINUTE)
    joined = node("n1", annotations={PRICE: "999"}, labels={"accelerator": "nvidia-a100-80gb", ZONE: "b"})

    def group(time: Time, *instances: ProvisionedInstance) -> Applied:
        return Applied(time, NodeGroup(name="p", instances=instances))

    bound = job_pod("a")
    found = rows(
        allocator(),
        group(START + 10 * MINUTE, launched),
        Applied(START + 20 * MINUTE, joined),
        group(START + 20 * MINUTE, ready),
        Applied(START + 30 * MINUTE, bound),
        group(START + 40 * MINUTE, leaving),
        Deleted(START + 45 * MINUTE, "pods", bound.key),
        Deleted(START + 50 * MINUTE, "nodes", "n1"),
        group(START + 55 * MINUTE),
        until=START + HOUR,
    )
    assert amounts(found, "cost_usd", "saved_usd") == {"idle": (2.0, 3.0), "Job/team/a": (1.0, 1.5)}
    assert {row.owner.pool for row in found} == {"p"}
    assert {(row.owner.capacity_type, row.owner.zone, row.owner.gpu_type) for row in found} == {
        (SPOT, "b", "a100-80gb")
    }


def test_a_static_spot_node_saves_the_difference_to_the_price_on_demand() -> None:
    labels = {"accelerator": "nvidia-a100-80gb", "cloud.google.com/gke-spot": "true"}
    found = rows(allocator(node("n1", labels=labels), job_pod("a", 4)), until=START + HOUR)
    assert amounts(found, "cost_usd", "saved_usd") == {"Job/team/a": (2.0, 6.0), "idle": (2.0, 6.0)}
    assert {row.owner.capacity_type for row in found} == {SPOT}


def test_team_project_and_user_are_labels_of_workload_job_or_pod_and_the_team_else_the_namespace() -> None:
    first = job_pod("a", 2, labels={"project": "of-pod", "user": "of-pod"}, workload="team/a")
    second = job_pod("b", 2, first=2)
    third = job_pod("c", 2, first=4, labels={"team": "", "group": "nlp"})
    objects: list[Object] = [
        *(node("n1"), first, second, third),
        workload("a", labels={"team": "vision", "user": "of-workload"}),
        Job(namespace="team", name="b", labels={"team": "speech"}),
    ]
    found = rows(allocator(*objects), until=START + HOUR)
    facts = {row.owner.workload: (row.owner.team, row.owner.project, row.owner.user, row.owner.queue) for row in found}
    assert facts == {
        "team/a": ("vision", "of-pod", "of-workload", "cq"),
        "Job/team/b": ("speech", "", "", ""),
        "Job/team/c": ("team", "", "", ""),
        "": ("", "", "", ""),
    }
    other = rows(allocator(*objects, labels=CostLabels(team="group")), until=START + HOUR)
    assert {row.owner.workload: row.owner.team for row in other} == {
        "team/a": "team",
        "Job/team/b": "team",
        "Job/team/c": "nlp",
        "": "",
    }


def test_a_change_of_a_label_or_a_queue_counts_from_its_time_on() -> None:
    admitted = workload("a", labels={"team": "red"})
    costs = allocator(node("n1"), job_pod("a", workload="team/a"), admitted)
    found = rows(
        costs,
        Applied(START + 15 * MINUTE, replace(admitted, labels={"team": "blue"})),
        Applied(START + 45 * MINUTE, workload("a", "other", labels={"team": "blue"})),
        until=START + HOUR,
    )
    assert {(row.owner.team, row.owner.queue): row.cost_usd for row in found} == pytest.approx(
        {("red", "cq"): 4.0, ("blue", "cq"): 8.0, ("blue", "other"): 4.0}
    )


def test_pods_that_outlive_their_admission_and_their_workload_keep_queue_and_team() -> None:
    admitted = workload("a", labels={"team": "red"})
    costs = allocator(node("n1"), job_pod("a", workload="team/a"), admitted)
    found = rows(
        costs,
        Applied(START + MINUTE, workload("a", "", labels={"team": "red"})),
        Deleted(START + 2 * MINUTE, "workloads", "team/a"),
        Applied(START + 3 * MINUTE, job_pod("a", workload="team/a", labels={"new": "yes"})),
        until=START + HOUR,
    )
    assert {(row.owner.team, row.owner.queue) for row in found} == {("red", "cq")}


def test_the_queue_of_a_pod_without_workload_is_that_of_its_pod_group() -> None:
    group = PodGroup(namespace="team", name="g", queue="nightly")
    member = job_pod("a", annotations={"scheduling.k8s.io/group-name": "g"})
    change = Applied(START + 15 * MINUTE, replace(group, queue="daily"))
    found = rows(allocator(node("n1"), member, group), change, until=START + HOUR)
    assert {row.owner.queue: row.cost_usd for row in found} == pytest.approx({"nightly": 4.0, "daily": 12.0})


def test_pods_of_system_namespaces_are_system_cost() -> None:
    plugin = replace(job_pod("dcgm", 2), namespace="gpu-operator")
    own = replace(job_pod("b", 2, first=2), namespace="infra")
    settings = CostLabels(system_namespaces=frozenset({"gpu-operator", "infra"}))
    found = rows(allocator(node("n1"), plugin, own, labels=settings), until=START + HOUR)
    assert amounts(found, "system_usd", "used_usd", "idle_usd") == {
        "Job/team/dcgm": (4.0, 0.0, 0.0),
        "Job/team/b": (4.0, 0.0, 0.0),
        "idle": (0.0, 0.0, 8.0),
    }
    assert {row.owner.kind for row in found} == {CostKind.SYSTEM, CostKind.IDLE}
    assert {row.owner.team for row in found} == {""}


def measured(time: Time, *percent: float, lasts: int = 0, sm: Sequence[float] = ()) -> Applied:
    devices = tuple(MeasuredDevice(gpu=index) for index in range(len(percent)))
    columns = {GpuMetric.UTILISATION: tuple(percent), **({GpuMetric.SM: tuple(sm)} if sm else {})}
    return Applied(time, NodeTelemetry(name="n1", time=time, lasts=lasts, devices=devices, columns=columns))


def test_what_is_allocated_below_30_percent_is_underutilized_and_without_a_measurement_used() -> None:
    costs = allocator(node("n1"), job_pod("a", 4), job_pod("b", 4, first=4))
    found = rows(costs, measured(START + 15 * MINUTE, *[20] * 4, *[90] * 4), until=START + HOUR)
    assert amounts(found, "used_usd", "underutilized_usd", "busy_gpu_seconds", "measured_gpu_seconds") == {
        "Job/team/a": (2.0, 6.0, 2160.0, 10800.0),
        "Job/team/b": (8.0, 0.0, 9720.0, 10800.0),
    }


def test_sm_activity_decides_where_it_is_measured_and_the_mean_of_the_gpus_counts() -> None:
    costs = allocator(node("n1"), job_pod("a", 2))
    found = rows(costs, measured(START, 95, 100, sm=[0.1, 0.4]), until=START + HOUR)
    assert amounts(found, "underutilized_usd", "busy_gpu_seconds") == {"Job/team/a": (4.0, 7020.0), "idle": (0.0, 0.0)}


def test_stale_telemetry_counts_until_it_becomes_stale() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    found = rows(costs, measured(START + 10 * MINUTE, *[0] * 8, lasts=15 * MINUTE), until=START + HOUR)
    assert amounts(found, "used_usd", "underutilized_usd", "measured_gpu_seconds") == {
        "Job/team/a": (12.0, 4.0, 7200.0)
    }


def test_lost_work_moves_from_used_to_lost_the_newest_hours_first() -> None:
    """8 GPUs for 150 minutes, of which the last 90 are lost: the half hour since 10:00, and the hour before it."""
    costs = allocator(node("n1"), job_pod("a"))
    end = START + 150 * MINUTE
    before = rows(costs, until=end)
    after = rows(costs, evicted(end, "Job/team/a", 8 * 90 * 60), until=end)
    assert [(row.hour, row.used_usd) for row in before] == pytest.approx(
        [(START, 16.0), (START + HOUR, 16.0), (START + 2 * HOUR, 8.0)]
    )
    assert [(row.hour, round(row.used_usd, 9), round(row.lost_usd, 9), row.gpu_seconds) for row in after] == [
        (START + 2 * HOUR, -8.0, 8.0, 0.0),
        (START + HOUR, -16.0, 16.0, 0.0),
    ]


def test_a_part_of_an_hour_is_lost_in_proportion_to_used_and_underutilized() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    end = START + 40 * MINUTE
    found = rows(costs, measured(START + 30 * MINUTE, *[5] * 8), evicted(end, "Job/team/a", 8 * 20 * 60), until=end)
    assert amounts(found, "used_usd", "underutilized_usd", "lost_usd") == {
        "Job/team/a": (4.0, 4 / 3, 16 / 3),
    }


def test_no_more_is_lost_than_was_booked() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    lines = [evicted(START + HOUR, "Job/team/a", 1e9) for _ in range(2)]
    found = rows(costs, *lines, until=START + HOUR)
    assert amounts(found, "used_usd", "lost_usd") == {"Job/team/a": (0.0, 16.0)}


def test_the_line_of_a_preemption_repeats_the_loss_of_its_eviction() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    kinds = (HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
    found = rows(costs, *(evicted(START + HOUR, "Job/team/a", 8 * 900, kind) for kind in kinds), until=START + HOUR)
    assert amounts(found, "used_usd", "lost_usd") == {"Job/team/a": (12.0, 4.0)}


def test_work_before_an_earlier_eviction_is_not_lost_again() -> None:
    """What an eviction did not lose was checkpointed; the next eviction loses only what was done since."""
    costs = allocator(node("n1"), job_pod("a"))
    first, second = START + HOUR, START + 90 * MINUTE
    found = rows(
        costs, evicted(first, "Job/team/a", 8 * 600), evicted(second, "Job/team/a", 1e9), until=START + 2 * HOUR
    )
    lost = 16 * 10 / 60 + 8.0
    assert amounts(found, "used_usd", "lost_usd") == {"Job/team/a": (32.0 - lost, lost)}


def test_a_lost_pod_of_a_job_loses_its_part_and_the_eviction_of_a_pod_finds_its_owner() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    line = HistoryEvent(time=START + HOUR, what=HistoryEventKind.POD_FAILED, pod="team/a", lost_gpu_seconds=3600.0)
    found = rows(costs, line, until=START + HOUR)
    assert amounts(found, "used_usd", "lost_usd") == {"Job/team/a": (14.0, 2.0)}


def test_a_long_run_can_be_lost_as_a_whole() -> None:
    """Hours that are alike take no memory each."""
    costs = allocator(node("n1"), job_pod("a"))
    end = START + 300 * HOUR
    costs.advance(end)
    costs.drain()
    found = rows(costs, evicted(end, "Job/team/a", 8 * 300 * 3600.0), until=end)
    assert sum(row.lost_usd for row in found) == pytest.approx(300 * 16.0)
    assert len({row.hour for row in found}) == 300


def test_finished_workloads_are_forgotten_after_an_hour() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    found = rows(costs, Deleted(START + MINUTE, "pods", "team/a"), until=START + 3 * HOUR)
    assert amounts(found, "cost_usd")["Job/team/a"] == pytest.approx(16 / 60)
    late = rows(costs, evicted(START + 3 * HOUR, "Job/team/a", 100.0), until=START + 3 * HOUR)
    assert late == ()


def test_history_events_that_arrive_late_do_not_move_the_time_back() -> None:
    costs = allocator(node("n1"), job_pod("a"))
    costs.advance(START + HOUR)
    costs.note(Applied(START + 30 * SECOND, node("n2")))
    assert costs.time == START + HOUR
    found = rows(costs, until=START + 2 * HOUR)
    assert sum(row.cost_usd for row in found) == pytest.approx(16.0 + 16.0 + 16.0)
