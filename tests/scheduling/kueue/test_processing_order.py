"""Admission fair sharing: LocalQueues of one ClusterQueue take turns by what they used lately."""

import math
from collections.abc import Mapping

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.queues import LocalQueue, StopPolicy
from gpuconsole.model.resources import BILLIONTH
from gpuconsole.model.workloads import CheckState, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue import workload_index as afs_usage
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig
from gpuconsole.scheduling.kueue.session import SessionState
from tests.support.kueue_cluster import GPU, LOWER, STRICT, World, admitted, pods, queue, victims, workload

UNIT = BILLIONTH
TEN_MINUTES = AdmissionFairSharing(usage_half_life=10 * MINUTE, usage_sampling_interval=5 * MINUTE)
ALPHA = 1 - math.pow(0.5, 0.5)
"""How much of a sample counts: five minutes at a half-life of ten."""
SHARED = replace(queue("q", 8), admission_mode="UsageBasedAdmissionFairSharing")


def door(name: str, *, used: float = 0, weight: float = 1.0) -> LocalQueue:
    consumed = {GPU: int(used * UNIT)} if used else {}
    return LocalQueue(namespace="team", name=name, cluster_queue="q", fair_weight=weight, consumed=consumed)


def world(*doors: LocalQueue, cluster_queue: object = SHARED, **settings: object) -> World:
    config = KueueConfig(admission_fair_sharing=TEN_MINUTES, **settings)  # type: ignore[arg-type]
    return World(cluster_queue, *doors, config=config)  # type: ignore[arg-type]


def consumed(world: World) -> Mapping[str, float]:
    """LocalQueue → GPUs that it consumed, as far as it used any."""
    state = world.session._state
    return {
        key.removeprefix("team/"): round(ledger.consumed.get(GPU, 0) / UNIT, 3)
        for key, ledger in state.local_queue_usage.items()
        if ledger.consumed.get(GPU)
    }


def pending(world: World) -> Mapping[str, float]:
    """Workload → GPUs that it is charged for until it is admitted."""
    return {
        key.removeprefix("team/"): round(amounts[GPU] / UNIT, 3)
        for ledger in world.session._state.local_queue_usage.values()
        for key, amounts in ledger.penalties.items()
    }


def reserve(world: World, name: str) -> Workload:
    """Let a workload with an open admission check get its quota."""
    world.apply(replace(world.workloads[name], checks=(CheckState(name="check", state="Pending"),)))
    (decision,) = world.session.run_cycle(world.now)
    reserved = conditions.reserve_quota(world.workloads[name], decision.admission, world.now)  # type: ignore[union-attr]
    world.apply(reserved)
    return reserved


def test_steady_usage_of_ten_is_consumed_little_by_little() -> None:
    ledger, seen = afs_usage.LocalQueueUsage(updated=0), []
    for sample in range(1, 4):
        ledger = afs_usage.with_sample(ledger, {GPU: 10 * UNIT}, sample * 5 * MINUTE, 10 * MINUTE)
        seen.append(round(ledger.consumed[GPU] / UNIT, 2))
    assert seen == [2.93, 5.0, 6.46]


def test_what_fades_ends_at_zero() -> None:
    ledger = afs_usage.LocalQueueUsage(updated=0, consumed={GPU: 3})
    for sample in range(1, 4):
        ledger = afs_usage.with_sample(ledger, {}, sample * MINUTE, 10 * MINUTE)
    assert ledger.consumed == {GPU: 0}


def test_a_clock_that_was_ahead_is_waited_for() -> None:
    ledger = afs_usage.LocalQueueUsage(updated=9 * MINUTE, consumed={GPU: UNIT})
    assert afs_usage.with_sample(ledger, {GPU: 8 * UNIT}, 5 * MINUTE, 10 * MINUTE) == ledger


def test_without_a_half_life_nothing_is_remembered() -> None:
    assert afs_usage.with_sample(
        afs_usage.LocalQueueUsage(updated=0, consumed={GPU: 5}), {GPU: 9}, 9, 0
    ) == afs_usage.LocalQueueUsage(updated=9)


ORDERS: dict[str, tuple[tuple[LocalQueue, ...], tuple[Workload, ...], list[str]]] = {
    "who used less comes first, whatever the priority": (
        (door("heavy", used=4), door("light", used=3)),
        (workload("a", "heavy", priority=100, created=1), workload("b", "light", created=2)),
        ["b", "a"],
    ),
    "usage is divided by weight": (
        (door("heavy", used=4, weight=2), door("light", used=3)),
        (workload("a", "heavy", created=2), workload("b", "light", created=1)),
        ["a", "b"],
    ),
    "equal usage leaves it to priority and age": (
        (door("one", used=2), door("two", used=2)),
        (workload("a", "one", created=1), workload("b", "two", priority=1, created=2), workload("c", "one", created=3)),
        ["b", "a", "c"],
    ),
    "a queue without weight comes last, even if it used nothing": (
        (door("nothing", weight=0), door("heavy", used=100)),
        (workload("a", "nothing", created=1), workload("b", "heavy", created=2)),
        ["b", "a"],
    ),
}


@pytest.mark.parametrize("case", ORDERS)
def test_the_next_is(case: str) -> None:
    doors, waiting, order = ORDERS[case]
    full = world(*doors)
    full.apply(*waiting)
    assert full.waiting("q") == order
    assert admitted(full.cycle()) == order[:1]


def test_a_queue_of_another_mode_goes_by_priority() -> None:
    classic = world(door("heavy", used=9), door("light"), cluster_queue=queue("q", 8))
    classic.apply(workload("a", "heavy", priority=1, created=2), workload("b", "light", created=1))
    assert classic.waiting("q") == ["a", "b"]


def test_without_the_gate_nobody_takes_turns() -> None:
    off = world(door("heavy", used=9), door("light"), gates={"AdmissionFairSharing": False})
    off.apply(workload("a", "heavy", created=1), workload("b", "light", created=2))
    assert off.waiting("q") == ["a", "b"]


def test_usage_weighs_resources() -> None:
    settings = replace(TEN_MINUTES, resource_weights={GPU: 0.5, "cpu": 0})
    weighed = World(SHARED, door("a", used=6), door("b", used=4), config=KueueConfig(admission_fair_sharing=settings))
    state = weighed.session._state
    state.local_queue_usage["team/b"] = replace(
        state.local_queue_usage["team/b"], consumed={GPU: 4 * UNIT, "cpu": 99 * UNIT, "memory": UNIT}
    )
    assert (state.recent_usage_of("team/a"), state.recent_usage_of("team/b")) == (3.0, 3.0)


def test_an_admission_is_consumed_at_once() -> None:
    """Its entry penalty becomes consumption: one LocalQueue cannot fill the cluster between two samples."""
    full = world(door("one"), door("two"))
    full.apply(*(workload(f"{name}-{n}", name, gpus=2, created=n) for name in ("one", "two") for n in (1, 2, 3)))
    assert [admitted(full.cycle())[0] for _ in range(4)] == ["one-1", "two-1", "one-2", "two-2"]
    assert pending(full) == {}
    assert consumed(full) == {"one": pytest.approx(4 * ALPHA, abs=0.02), "two": pytest.approx(4 * ALPHA, abs=0.02)}


def test_a_parked_head_lets_the_next_of_its_local_queue_be_tried() -> None:
    full = world(
        door("light"),
        door("heavy", used=1),
        cluster_queue=replace(SHARED, resource_groups=queue("q", 4).resource_groups),
    )
    full.apply(workload("big", "light", gpus=9, created=1), workload("alike", "light", gpus=9, created=2))
    full.apply(workload("other", "heavy", gpus=9, created=3), workload("small", "heavy", created=4))
    assert admitted(full.cycle()) == []
    assert full.waiting("q") == ["(big)", "(alike)", "(other)", "small"]
    assert admitted(full.cycle()) == ["small"]


def test_woken_workloads_come_in_the_order_of_usage() -> None:
    full = world(door("light"), door("heavy", used=1))
    full.run(workload("first", "heavy", gpus=8))
    full.run(workload("a", "heavy", gpus=8, created=1), workload("b", "light", gpus=8, created=2))
    assert full.waiting("q") == ["(b)", "(a)"]
    full.finish("first")
    assert full.waiting("q") == ["b", "a"]
    assert admitted(full.cycle()) == ["b"]


def test_a_preemptor_stays_first_within_its_local_queue_only() -> None:
    full = world(
        door("light", used=1),
        door("heavy", used=20),
        cluster_queue=replace(SHARED, preemption=queue("p", within=LOWER).preemption),
    )
    full.run(workload("victim", "heavy", gpus=8))
    full.apply(workload("preemptor", "light", gpus=8, priority=5))
    full.session.run_cycle(full.now)
    full.apply(workload("later", "light", priority=9))
    assert full.waiting("q") == ["preemptor", "later"]
    full.apply(door("new"), workload("newcomer", "new"))
    assert full.waiting("q") == ["newcomer", "preemptor", "later"]
    full.apply(door("equal", used=1), workload("rival", "equal", priority=99))
    full.session.delete("workloads", "team/newcomer", full.now)
    assert full.waiting("q") == ["preemptor", "rival", "later"]
    head = full.session._apply_noted_changes.workload_index.queue("q").head(full.session._state.recent_usage_of)
    assert head is not None
    assert head.workload.name == "preemptor"


def test_strict_queues_try_the_local_queue_that_used_least() -> None:
    strict = world(door("light"), door("heavy", used=1), cluster_queue=replace(SHARED, queueing_strategy=STRICT))
    strict.run(workload("big", "light", gpus=9), workload("small", "heavy"))
    assert (strict.running, strict.waiting("q")) == (set(), ["big", "small"])


def test_the_local_queue_that_used_most_loses_first() -> None:
    shared = replace(SHARED, preemption=queue("p", within=LOWER).preemption)
    full = world(door("light"), door("heavy", used=20), door("high"), cluster_queue=shared)
    full.run(workload("newest", "light", gpus=4), workload("dear", "heavy", gpus=4, priority=3))
    full.apply(workload("preemptor", "high", gpus=4, priority=9))
    assert victims(full.cycle()) == {"dear": "InClusterQueue"}


def test_a_reservation_costs_a_penalty_until_the_workload_is_admitted() -> None:
    full = world(door("one"), door("two"))
    full.apply(workload("a", "one", gpus=4, created=1))
    reserved = reserve(full, "a")
    assert (pending(full), consumed(full)) == ({"a": round(4 * ALPHA, 3)}, {})
    full.apply(workload("b", "one", created=2), workload("c", "two", created=3))
    assert full.waiting("q") == ["c", "b"]
    full.apply(replace(reserved, checks=(CheckState(name="check", state="Ready"),)))
    full.apply(conditions.sync_admitted(full.workloads["a"], full.now))
    assert (pending(full), consumed(full)) == ({}, {"one": round(4 * ALPHA, 3)})
    full.apply(replace(full.workloads["a"], labels={"seen": "twice"}))
    assert consumed(full) == {"one": round(4 * ALPHA, 3)}


def test_a_penalty_is_paid_for_declared_resources_only_where_others_need_no_quota() -> None:
    loose = world(door("one"), ignore_undeclared=True)
    loose.apply(workload("a", "one", pod_sets=(pods(1, 4, cpu=8000),)))
    reserve(loose, "a")
    assert loose.session._state.local_queue_usage["team/one"].total_penalty.keys() == {GPU}


def test_elsewhere_a_reservation_costs_nothing() -> None:
    classic = world(door("one"), cluster_queue=queue("q", 8))
    classic.apply(workload("a", "one"))
    reserve(classic, "a")
    assert pending(classic) == {}


def test_a_workload_that_is_stopped_as_it_is_admitted_is_charged_for_nothing_more() -> None:
    full = world(door("one"))
    full.apply(workload("a", "one"))
    reserved = reserve(full, "a")
    ready = replace(reserved, checks=(CheckState(name="check", state="Ready"),), active=False)
    full.apply(conditions.sync_admitted(ready, full.now))
    assert (pending(full), consumed(full)) == ({"a": round(ALPHA, 3)}, {})


def test_between_samples_a_change_of_a_running_workload_is_no_sample() -> None:
    full = world(door("one"))
    full.run(workload("a", "one", gpus=8))
    known = consumed(full)
    full.now += 2 * MINUTE
    full.apply(replace(full.workloads["a"], labels={"seen": "twice"}))
    assert consumed(full) == known


ENDS: dict[str, tuple[str, bool]] = {
    "finished": ("finish", False),
    "deleted": ("delete", False),
    "moved to another LocalQueue": ("move", False),
    "stopped, its quota taken": ("stop", False),
    "stopped, with its quota": ("hold", True),
    "evicted, and coming back": ("evict", True),
    "not written down: the reservation failed": ("fail", False),
}


@pytest.mark.parametrize("case", ENDS)
def test_whether_a_penalty_stays_when_the_workload_was(case: str) -> None:
    end, stays = ENDS[case]
    full = world(door("one"), door("two"))
    before = workload("a", "one")
    full.apply(before)
    if end == "fail":
        full.session.run_cycle(full.now)
        full.apply(before)
    else:
        reserved = reserve(full, "a")
        released = conditions.release_quota(conditions.mark_evicted(reserved, "Preempted", "", full.now), full.now)
        match end:
            case "finish":
                full.finish("a")
            case "delete":
                full.session.delete("workloads", "team/a", full.now)
            case "move":
                full.apply(replace(released, queue="two"))
            case "stop":
                full.apply(replace(released, active=False))
            case "hold":
                full.apply(replace(reserved, active=False))
            case "evict":
                full.apply(released)
    assert ("a" in pending(full)) is stays
    assert consumed(full) == {}


def test_samples_follow_what_runs_and_what_ran() -> None:
    full = world(door("one"), door("idle"))
    full.run(workload("a", "one", gpus=8))
    admitted = full.now
    full.now += SECOND
    full.session.take_due_samples(full.now)
    assert full.session.next_sample == admitted + 5 * MINUTE
    first = consumed(full)["one"]
    full.now = admitted + 5 * MINUTE
    full.session.afs_usage_changes()
    full.session.take_due_samples(full.now)
    assert [lately.local_queue for lately in full.session.afs_usage_changes()] == ["team/one"]
    second = consumed(full)["one"]
    assert second == pytest.approx(first * (1 - ALPHA) + 8 * ALPHA, abs=0.01)
    full.finish("a")
    full.apply(workload("waits", "idle", gpus=9))
    full.now += 5 * MINUTE
    full.session.take_due_samples(full.now)
    assert consumed(full)["one"] == pytest.approx(second * (1 - ALPHA), abs=0.01)


def test_a_cluster_at_rest_is_not_looked_at_and_fades_all_the_same() -> None:
    rest = world(door("one", used=8))
    rest.now += SECOND
    rest.session.take_due_samples(rest.now)
    assert rest.session.next_sample is None
    rest.now += 23 * MINUTE
    rest.apply(workload("a", "one"))
    assert rest.session._state.recent_usage_of("team/one") == pytest.approx(8 * 0.5**2, abs=0.001)


def test_a_stopped_local_queue_is_not_looked_at() -> None:
    stopped = world(door("one", used=8))
    stopped.apply(workload("a", "one"), replace(door("one", used=8), stop_policy=StopPolicy.HOLD))
    stopped.now += 5 * MINUTE
    stopped.session.take_due_samples(stopped.now)
    assert consumed(stopped) == {"one": 8.0}


def test_the_status_of_a_local_queue_is_read_once() -> None:
    seeded = world(door("one", used=8))
    seeded.run(workload("a", "one"))
    known = consumed(seeded)
    seeded.apply(door("one", used=99))
    assert consumed(seeded) == known


def test_a_local_queue_that_went_is_forgotten() -> None:
    gone = world(door("one", used=8))
    gone.apply(workload("a", "one"))
    reserve(gone, "a")
    gone.session.delete("local_queues", "team/one", gone.now)
    gone.apply(door("one"))
    assert (consumed(gone), pending(gone)) == ({}, {})


def test_a_status_that_changed_is_no_new_configuration() -> None:
    same = world(door("one"))
    setup = same.session._apply_noted_changes.setup
    same.apply(replace(door("one", used=3), sampled=same.now))
    assert same.session._apply_noted_changes.setup is setup


def test_a_fork_and_a_saved_session_charge_on_alone() -> None:
    full = world(door("one"), door("two", used=1))
    full.apply(workload("a", "one"), workload("b", "two"))
    reserve(full, "a")
    known = consumed(full), pending(full), full.session.next_sample
    memory = msgspec.msgpack.decode(msgspec.msgpack.encode(full.session.dump()), type=SessionState)
    fork, saved = full.session.fork(), world(door("one"), door("two"))
    for thing in full.workloads.values():
        saved.apply(thing)
    saved.session.load(memory)
    full.finish("a")
    full.session.take_due_samples(full.now + MINUTE * 5)
    assert pending(full) == {}
    assert (consumed(saved), pending(saved), saved.session.next_sample) == known
    saved.session = fork
    assert (consumed(saved), pending(saved), fork.next_sample) == known
