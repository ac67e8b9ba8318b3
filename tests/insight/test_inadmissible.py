"""A fork of a live cluster leaves whom Kueue refused alone until something changes, as Kueue does."""

from collections.abc import Iterable

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.insight.forecast.forecast import ForecastAction, Forecaster
from gpuconsole.model.clock import MINUTE, SECOND, Time
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.cooperative import run_to_end
from gpuconsole.model.events import Applied, Deleted, HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container
from gpuconsole.model.queues import ClusterQueuePreemption, LocalQueue, QueueingStrategy, Quota
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Condition, RequeueState, Workload
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.live_base import LiveBase
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.protocol import ENCODER, UpdateSnapshot
from gpuconsole.workers.replica import LiveReplica
from tests.support.snapshots import A100, START, cluster_queue, cohort, group, running, waiting, world

POLICY = SimPolicy(kueue=KueueConfig(wait_for_pods_ready=None))
NO_FIT = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100"
PENDING = f"{NO_FIT}. Pending the preemption of 1 workload(s)"
QUEUES: tuple[Object, ...] = (
    Namespace(name="prod"),
    A100,
    cluster_queue("cq", "team", Quota(16, borrowing_limit=0)),
    cluster_queue("other", "team", Quota(8)),
    LocalQueue(namespace="prod", name="lq", cluster_queue="cq"),
    LocalQueue(namespace="prod", name="other", cluster_queue="other"),
)
LONG = running("long", "prod/lq", 8, "cq", minutes_ago=60, priority=100)
LOW = running("low", "prod/lq", 8, "cq", minutes_ago=30)
REFUSED = waiting("refused", "prod/lq", 8, NO_FIT, minutes_ago=40, priority=50)
"""It was refused before `LOW` came, which it could preempt."""


def fates(snapshot: Snapshot, foreseer: Forecaster | None = None) -> dict[str, ForecastAction]:
    told = (foreseer or Forecaster()).forecast(snapshot, POLICY)
    return {key.partition("/")[2]: one.fate for key, one in told.prospects.items()}


def looks(*clusters: tuple[int, Iterable[Object]]) -> dict[str, ForecastAction]:
    """What is foreseen at the last of several looks, each so many seconds after START."""
    foreseer = Forecaster()
    found: dict[str, ForecastAction] = {}
    for seconds, objects in clusters:
        found = fates(world([*QUEUES, *objects], now=START + seconds * SECOND), foreseer)
    return found


def finished(workload: Workload, at: Time) -> Workload:
    return replace(workload, conditions=(*workload.conditions, Condition("Finished", True, "Succeeded", "", at)))


def evicted(workload: Workload, by: str, at: Time) -> Workload:
    message = f"Preempted to accommodate a workload (UID: {by}, JobUID: UNKNOWN) due to prioritization"
    return replace(workload, conditions=(*workload.conditions, Condition("Evicted", True, "Preempted", message, at)))


TRIED = {"refused": ForecastAction.AFTER_VICTIMS, "low": ForecastAction.PREEMPTED}
OTHER = running("gone", "prod/other", 8, "other", minutes_ago=60)


def test_a_refused_workload_preempts_nobody_that_came_after_it() -> None:
    assert looks((0, [LONG, LOW, REFUSED])) == {"refused": ForecastAction.WAITS}


def test_what_is_taken_for_granted_of_refused_workloads_is_said() -> None:
    new = waiting("new", "prod/lq", 8, minutes_ago=1, priority=50)
    several = Forecaster().forecast(world([*QUEUES, LONG, LOW, REFUSED, new]), POLICY).queues
    none = Forecaster().forecast(world([*QUEUES, LONG, LOW, replace(new, priority=0)]), POLICY).queues
    assert several == (
        "2 workloads are assumed to be inadmissible: nothing in their cohort tree has changed since Kueue refused them",
    )
    assert none == ()


def test_what_is_tried_again_though_kueue_refused_it_is_said_as_well() -> None:
    foreseer = Forecaster()
    looks = ((START, [*QUEUES, LONG, LOW, OTHER, REFUSED]), (START + 2 * SECOND, [*QUEUES, LONG, LOW, REFUSED]))
    told = [foreseer.forecast(world(objects, now=now), POLICY).queues for now, objects in looks]
    since = "in its cohort tree has changed since Kueue refused it"
    assert told == [
        (f"1 workload is assumed to be inadmissible: nothing {since}",),
        (f"1 workload is assumed to be requeued: something {since}",),
    ]


def test_a_workload_that_was_never_refused_is_tried() -> None:
    new = replace(REFUSED, conditions=())
    assert looks((0, [LONG, LOW, new])) == TRIED


def test_a_look_alike_of_a_refused_workload_is_not_tried_either() -> None:
    new = waiting("new", "prod/lq", 8, minutes_ago=1, priority=50)
    assert looks((0, [LONG, LOW, REFUSED, new])) == {"refused": ForecastAction.WAITS, "new": ForecastAction.WAITS}


def test_a_workload_of_another_priority_is_tried() -> None:
    new = waiting("new", "prod/lq", 8, minutes_ago=1, priority=60)
    assert looks((0, [LONG, LOW, REFUSED, new])) == {
        "refused": ForecastAction.WAITS,
        "new": ForecastAction.AFTER_VICTIMS,
        "low": ForecastAction.PREEMPTED,
    }


def test_quota_that_is_freed_anywhere_in_the_cohort_has_it_tried_again() -> None:
    ended = finished(OTHER, START + SECOND)
    for after in ([LONG, LOW, REFUSED], [LONG, LOW, REFUSED, ended]):
        assert looks((0, [LONG, LOW, REFUSED, OTHER]), (2, after)) == TRIED
    assert looks((0, [LONG, LOW, REFUSED, OTHER]), (2, [LONG, LOW, REFUSED, OTHER])) == {
        "refused": ForecastAction.WAITS
    }


def test_once_kueue_scheduled_again_after_that_it_is_inadmissible_again() -> None:
    def late(at: int) -> Workload:
        low = running("low", "prod/lq", 8, "cq")
        return replace(low, conditions=(Condition("QuotaReserved", True, "", "", START + at * SECOND),))

    before = running("before", "prod/lq", 8, "cq", minutes_ago=60, priority=100)
    first = [LONG, before, REFUSED]
    freed = (2, [LONG, finished(before, START + SECOND), REFUSED])
    assert looks((0, first), freed) == {"refused": ForecastAction.ADMITTED}
    assert looks((0, first), freed, (10, [LONG, late(8), REFUSED])) == {"refused": ForecastAction.WAITS}
    assert looks((0, first), freed, (3, [LONG, late(2), REFUSED])) == TRIED


@pytest.mark.parametrize(
    "message",
    [
        "Workload no longer fits after processing another workload",
        "Workload has overlapping preemption targets with another workload",
        f"{NO_FIT}. Preempting 1 workload(s) failed, will retry.",
    ],
)
def test_a_refused_workload_that_others_of_a_cycle_came_before_is_tried_again_at_once(message: str) -> None:
    before = running("before", "prod/lq", 8, "cq", minutes_ago=60, priority=100)
    low = running("low", "prod/lq", 8, "cq")
    low = replace(low, conditions=(Condition("QuotaReserved", True, "", "", START + 8 * SECOND),))
    again = replace(REFUSED, conditions=(Condition("QuotaReserved", False, "Pending", message, START + 8 * SECOND),))
    freed = [LONG, finished(before, START + SECOND), REFUSED]
    assert looks((0, [LONG, before, REFUSED]), (2, freed), (10, [LONG, low, again])) == TRIED


def test_at_the_first_look_what_was_freed_last_is_read_from_conditions() -> None:
    low = replace(LOW, conditions=(Condition("QuotaReserved", True, "", "", START - 10 * SECOND),))
    assert looks((0, [LONG, low, REFUSED, finished(OTHER, START - 5 * SECOND)])) == TRIED
    assert looks((0, [LONG, low, REFUSED, finished(OTHER, START - MINUTE)])) == {"refused": ForecastAction.WAITS}


def test_a_strict_queue_tries_its_head_for_ever() -> None:
    strict = cluster_queue("cq", "team", Quota(16, borrowing_limit=0), queueing_strategy=QueueingStrategy.STRICT_FIFO)
    told = fates(world([*QUEUES, strict, OTHER, LONG, LOW, REFUSED]))
    assert told == TRIED


def test_a_workload_that_no_longer_fit_in_its_cycle_is_tried_again_at_once() -> None:
    other = "Workload no longer fits after processing another workload"
    again = replace(REFUSED, conditions=(Condition("QuotaReserved", False, "Pending", other, START),))
    assert looks((0, [LONG, LOW, again])) == TRIED


def test_of_several_pod_sets_one_whose_search_has_flavors_left_is_tried_again_at_once() -> None:
    h100 = replace(A100, name="h100")
    groups = (group({"a100": Quota(16, borrowing_limit=0), "h100": Quota(0, borrowing_limit=0)}),)
    queues = [*QUEUES, h100, cluster_queue("cq", "team", resource_groups=groups)]
    [pod_set] = REFUSED.pod_sets
    small = replace(pod_set, template=replace(pod_set.template, containers=(Container(requests={GPU: 4}),)))
    both = replace(REFUSED, pod_sets=(small, replace(small, name="workers")))
    every = f"{NO_FIT}, {NO_FIT.partition(': ')[2].replace('a100', 'h100')}"
    for message, fate in ((NO_FIT, ForecastAction.AFTER_VICTIMS), (every, ForecastAction.WAITS)):
        refused = replace(both, conditions=(Condition("QuotaReserved", False, "Pending", message, START - MINUTE),))
        assert fates(world([*queues, LONG, LOW, refused]))["refused"] is fate
    foreseer = Forecaster()
    for message, fate in ((every, ForecastAction.WAITS), (NO_FIT, ForecastAction.AFTER_VICTIMS)):
        refused = replace(both, conditions=(Condition("QuotaReserved", False, "Pending", message, START - MINUTE),))
        assert fates(world([*queues, LONG, LOW, refused]), foreseer)["refused"] is fate


def test_a_changed_quota_has_the_whole_tree_tried_again() -> None:
    foreseer = Forecaster()
    assert fates(world([*QUEUES, LONG, LOW, OTHER, REFUSED]), foreseer) == {"refused": ForecastAction.WAITS}
    more = cluster_queue("other", "team", Quota(9))
    after = world([*QUEUES, more, LONG, LOW, OTHER, REFUSED], now=START + 2 * SECOND)
    assert fates(after, foreseer) == TRIED


def test_below_a_cohort_object_every_status_of_a_cluster_queue_has_the_tree_tried_again() -> None:
    came = waiting("came", "prod/other", 80)
    for cohorts, fate in (
        ((cohort("team", "org"),), ForecastAction.AFTER_VICTIMS),
        ((cohort("team"),), ForecastAction.WAITS),
    ):
        foreseer, objects = Forecaster(), [*QUEUES, *cohorts, LONG, LOW, REFUSED]
        assert fates(world(objects), foreseer) == {"refused": ForecastAction.WAITS}
        assert fates(world([*objects, came], now=START + 2 * SECOND), foreseer)["refused"] is fate


def backing_off(until: Time) -> Workload:
    return replace(waiting("later", "prod/other", 80, minutes_ago=1), requeue=RequeueState(count=1, at=until))


AFS = KueueConfig(wait_for_pods_ready=None, admission_fair_sharing=AdmissionFairSharing())


@pytest.mark.parametrize(
    ("policy", "until"),
    [(POLICY, START + SECOND), (SimPolicy(kueue=AFS), START + MINUTE)],
    ids=["a backoff ends", "usage decays"],
)
def test_what_looks_have_shown_is_kept_as_time_passes(policy: SimPolicy, until: Time) -> None:
    """The engine is told the cluster anew then."""
    later, foreseer, footing = backing_off(until), Forecaster(), LiveBase(policy, seed=0)
    looks = [
        world([*QUEUES, LONG, LOW, OTHER, REFUSED, later]),
        world([*QUEUES, LONG, LOW, REFUSED, later], now=START + 2 * SECOND),
    ]
    told = [foreseer.forecast(look, policy).prospects["prod/refused"].fate for look in looks]
    for look in looks:
        run_to_end(footing.update(look))
    simulation = run_to_end(Simulation.from_live_base(footing))
    simulation.advance(simulation.now + 30 * SECOND)
    reserved = simulation.snapshot().workloads[REFUSED.key].reserved
    assert (told, reserved) == ([ForecastAction.WAITS, ForecastAction.AFTER_VICTIMS], True)


def test_a_workload_whose_backoff_ends_is_tried_though_others_stay_inadmissible() -> None:
    foreseer, later = Forecaster(), replace(backing_off(START + SECOND), queue="other")
    small = replace(later, pod_sets=REFUSED.pod_sets)
    told = [
        fates(world([*QUEUES, LONG, LOW, REFUSED, small], now=START + seconds * SECOND), foreseer) for seconds in (0, 2)
    ]
    assert told == [
        {"refused": ForecastAction.WAITS, "later": ForecastAction.WAITS},
        {"refused": ForecastAction.WAITS, "later": ForecastAction.ADMITTED},
    ]


class TestPreemptors:
    """Under BestEffortFIFO the workload whose victims are terminating is tried first, whoever comes."""

    MINE = waiting("mine", "prod/lq", 8, PENDING, minutes_ago=5, priority=50)
    URGENT = waiting("urgent", "prod/lq", 8, minutes_ago=1, priority=80)
    OFFERS: tuple[Object, ...] = (
        *QUEUES,
        cluster_queue("cq", "team", Quota(16, borrowing_limit=0), preemption=ClusterQueuePreemption()),
        LONG,
    )

    def test_it_is_admitted_before_one_of_higher_priority(self) -> None:
        assert fates(world([*self.OFFERS, self.MINE, self.URGENT])) == {
            "mine": ForecastAction.ADMITTED,
            "urgent": ForecastAction.WAITS,
        }

    def test_of_two_the_one_that_preempted_last_is_tried_first(self) -> None:
        second = replace(self.MINE, name="second", uid="second", priority=40)
        leaving = [
            evicted(running(name, "prod/other", 0, "other", minutes_ago=9), by, START - ago * SECOND)
            for name, by, ago in (("v", "mine", 9), ("w", "second", 3))
        ]
        told = fates(world([*self.OFFERS, self.MINE, second, *leaving]))
        assert (told["mine"], told["second"]) == (ForecastAction.WAITS, ForecastAction.ADMITTED)

    def test_it_stays_so_until_it_has_quota(self) -> None:
        foreseer = Forecaster()
        full = running("full", "prod/lq", 8, "cq", minutes_ago=9, priority=100)
        fates(world([*self.OFFERS, full, self.MINE]), foreseer)
        later = world([*self.OFFERS, self.MINE, self.URGENT], now=START + 2 * SECOND)
        assert fates(later, foreseer) == {"mine": ForecastAction.ADMITTED, "urgent": ForecastAction.WAITS}


class TestFutures:
    """A simulation that goes on from a live cluster leaves them alone as well."""

    @staticmethod
    def quota_after(seconds: int, *clusters: tuple[int, Iterable[Object]]) -> dict[str, bool]:
        footing = LiveBase(POLICY, seed=0)
        for at, objects in clusters:
            run_to_end(footing.update(world([*QUEUES, *objects], now=START + at * SECOND)))
        simulation = run_to_end(Simulation.from_live_base(footing))
        simulation.advance(simulation.now + seconds * SECOND)
        found = simulation.snapshot().workloads.all()
        return {
            one.name: one.reserved and not one.is_true("Evicted") for one in found if one.name in ("refused", "low")
        }

    def test_whom_kueue_refused_preempts_nobody(self) -> None:
        assert self.quota_after(30, (0, [LONG, LOW, REFUSED])) == {"low": True, "refused": False}

    def test_what_was_freed_has_it_tried_again(self) -> None:
        found = self.quota_after(30, (0, [LONG, LOW, REFUSED, OTHER]), (1, [LONG, LOW, REFUSED]))
        assert found == {"low": False, "refused": True}

    def test_it_is_tried_again_a_second_after_that(self) -> None:
        footing, objects = LiveBase(POLICY, seed=0), [*QUEUES, LONG, LOW, REFUSED]
        for at, cluster in ((0, [*objects, OTHER]), (2_000_000, objects), (2_400_000, objects)):
            run_to_end(footing.update(world(cluster, now=START + at)))
        simulation = run_to_end(Simulation.from_live_base(footing))
        simulation.advance(simulation.now + 10 * SECOND)
        evictions = (
            line
            for line in simulation.drain()
            if isinstance(line, HistoryEvent) and line.what is HistoryEventKind.PREEMPTED
        )
        assert [(line.workload, line.time - START) for line in evictions] == [("prod/low", 3_000_000)]

    @pytest.mark.parametrize("looked", [True, False])
    def test_what_earlier_looks_have_shown_is_known_to_the_first_what_if(self, looked: bool) -> None:
        mirror, objects = LiveReplica(), [*QUEUES, LONG, LOW, OTHER, REFUSED]
        mirror.see(self.see(START, [Applied(START, one) for one in objects], anew=True))
        if looked:
            mirror.look((), ())
        later = START + 2 * SECOND
        mirror.see(self.see(later, [Deleted(later, "workloads", OTHER.key)]))
        if looked:
            mirror.look((), ())
        simulation = mirror.base(frozenset()).simulation
        simulation.advance(later + 30 * SECOND)
        assert simulation.snapshot().workloads[REFUSED.key].reserved is looked

    @staticmethod
    def see(time: Time, events: list[Applied | Deleted], *, anew: bool = False) -> UpdateSnapshot:
        policy = msgspec.json.encode(POLICY)
        return UpdateSnapshot(anew=anew, time=time, news=(ENCODER.encode(events),), policy=policy)
