"""Somebody else's cluster in the worker: told only what changed, and known as if it had been told all."""

from collections.abc import Iterator
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.backends.base import Missing
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.forecast import forecast
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import rehearsal_on, tried
from gpuconsole.insight.whatif.whatif import what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Cordon, SetPriority
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.snapshot import change_events
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.workloads import RequeueState
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.workers.client import ObservedCluster, Worker
from gpuconsole.workers.protocol import (
    ENCODER,
    NEWS,
    AskForecast,
    BeginShadow,
    Done,
    Failed,
    FollowChanges,
    ForecastReply,
    Question,
    Request,
    ShadowReply,
    UpdateSnapshot,
    explain_pending,
    try_commands,
)
from gpuconsole.workers.replica import LiveReplica, RequestHandler
from tests.insight.test_forecast_check import WAITS, admitted
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import ORG, ORG_QUEUES, START, node, waiting

NOTHING = ()


class Shown(Worker):
    """A worker that notes how many changes it is told at a time."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[int] = []

    def _send(self, request: Request) -> None:
        if isinstance(request, UpdateSnapshot):
            self.told.append(sum(len(NEWS.decode(part)) for part in request.news))
        super()._send(request)


@pytest.fixture
def worker() -> Iterator[Shown]:
    made = Shown()
    yield made
    made.close()


def seen(cluster: Elsewhere) -> ObservedCluster:
    list(cluster.poll(0))
    return ObservedCluster(cluster, cluster.snapshot(), cluster.policy)


def test_only_what_changed_is_told_and_the_answers_are_those_of_the_whole_cluster(worker: Shown) -> None:
    cluster = Elsewhere((*ORG, node("n1"), WAITS), START)
    foreseen, _ = worker.forecast(seen(cluster), NOTHING, NOTHING)
    assert foreseen == forecast(cluster.snapshot(), cluster.policy)
    cluster.wait(2)
    cluster.put(replace(WAITS, priority=7))
    cluster.drop(node("n1"))
    foreseen, _ = worker.forecast(seen(cluster), NOTHING, NOTHING)
    assert foreseen == forecast(cluster.snapshot(), cluster.policy)
    assert foreseen.prospects["prod/waits"].priority == 7
    assert worker.told == [len(ORG) + 2, 2]


def test_why_is_asked_of_the_cluster_as_it_is_known_from_what_changed(worker: Shown) -> None:
    other = waiting("other", "prod/lq", 2, requeue=RequeueState(1, START + MINUTE))
    cluster = Elsewhere((*ORG, node("n1"), WAITS, other), START)
    for change in (None, replace(WAITS, priority=7), replace(WAITS, priority=20_000)):
        if change is not None:
            cluster.put(change)
        cluster.wait(50)
        for key in ("prod/waits", "prod/other"):
            now = seen(cluster)
            simulating = partial(Simulation.from_snapshot, now.snapshot, policy=cluster.policy, seed=0)
            fresh = tried(now.snapshot, rehearsal_on(now.snapshot, DEFAULT), key, simulating)
            *_, last = worker.ask(explain_pending, now, key)
            assert last.answer == fresh
    assert fresh.why.code is not PendingReason.BACKOFF
    assert worker.told == [len(ORG) + 3, 0, 1, 0, 1, 0]


def test_what_gpus_measure_is_not_told(worker: Shown) -> None:
    cluster = Elsewhere((*ORG_QUEUES, NodeTelemetry(name="n1", time=START)), START)
    worker.forecast(seen(cluster), NOTHING, NOTHING)
    assert worker.told == [len(ORG_QUEUES)]


def test_a_what_if_and_a_look_know_the_same_cluster(worker: Shown) -> None:
    cluster = Elsewhere((*ORG, node("n1"), WAITS), START)
    worker.forecast(seen(cluster), NOTHING, NOTHING)
    question = (SetPriority("prod/waits", 100),)
    assert complete_answer(worker.ask(try_commands, seen(cluster), question, HOUR, (), ())) == complete_answer(
        what_if_steps(cluster.fork(), question, HOUR, found=cluster.snapshot())
    )
    assert worker.told == [len(ORG) + 2, 0]


def test_a_question_that_waited_for_its_turn_takes_nothing_back_that_was_shown_since(worker: Shown) -> None:
    cluster = Elsewhere((*ORG, node("n1"), WAITS), START)
    early = seen(cluster)
    cluster.wait(2)
    cluster.put(replace(WAITS, priority=7))
    late = seen(cluster)
    foreseen, _ = worker.forecast(late, NOTHING, NOTHING)
    assert worker.forecast(early, NOTHING, NOTHING)[0] == foreseen
    assert worker.told == [len(ORG) + 2, 0]


def test_another_cluster_begins_with_nothing_and_the_first_can_come_back(worker: Shown) -> None:
    first, second = Elsewhere((*ORG_QUEUES, WAITS), START), Elsewhere((*ORG_QUEUES, admitted(WAITS)), START)
    for cluster in (first, second, first):
        foreseen, said = worker.forecast(seen(cluster), NOTHING, NOTHING)
        assert foreseen == forecast(cluster.snapshot(), cluster.policy)
        assert said == ForecastDifferences()
    assert worker.told == [len(ORG_QUEUES) + 1] * 3


def see(mirror: LiveReplica, cluster: Elsewhere, *, anew: bool = False) -> None:
    """Show a mirror what happened in the cluster since the last time."""
    news = tuple(ENCODER.encode([event]) for event in cluster.poll(0))
    mirror.see(UpdateSnapshot(anew, cluster.snapshot().time, news, msgspec.json.encode(cluster.policy)))


def shown(*objects: Object) -> tuple[Elsewhere, LiveReplica]:
    cluster, mirror = Elsewhere((), START), LiveReplica()
    cluster.put(*objects)
    see(mirror, cluster, anew=True)
    return cluster, mirror


NOBODY = frozenset[str]()


def test_the_simulation_is_kept_while_nothing_changes_for_a_minute() -> None:
    cluster, mirror = shown(*ORG, WAITS)
    first = mirror.base(NOBODY)
    cluster.wait(60)
    see(mirror, cluster)
    assert mirror.base(NOBODY) is first
    cluster.wait(1)
    see(mirror, cluster)
    second = mirror.base(NOBODY)
    assert (second.found.time, second.simulation.now) == (START + MINUTE + SECOND,) * 2


@pytest.mark.parametrize(
    ("change", "seconds", "named", "does"),
    [
        (replace(WAITS, priority=7), 5, NOBODY, True),
        (replace(WAITS, priority=7), 6, NOBODY, False),
        (replace(WAITS, priority=7), 1, frozenset({WAITS.key}), False),
        (waiting("new", "prod/lq", 1), 1, frozenset({WAITS.key}), True),
        (waiting("new", "prod/lq", 1), 1, frozenset({"prod/new"}), False),
        (node("n2"), 1, NOBODY, False),
        (replace(ORG_QUEUES[-1]), 1, NOBODY, True),
    ],
    ids=["others", "long ago", "named", "another came", "the named one came", "a node came", "said again"],
)
def test_a_question_is_asked_of_seconds_ago_where_only_work_changed_that_it_does_not_name(
    change: Object, seconds: int, named: frozenset[str], does: bool
) -> None:
    cluster, mirror = shown(*ORG, node("n1"), WAITS)
    first = mirror.base(NOBODY)
    cluster.wait(seconds)
    cluster.put(change)
    see(mirror, cluster)
    later = mirror.base(named)
    assert (later is first) is does
    assert later.found.time == later.simulation.now
    assert (later.found is mirror.snapshot) is not does


def test_what_is_expected_is_made_ready_piece_by_piece_and_found_by_who_asks() -> None:
    cluster, mirror = shown(*ORG, node("n1"), WAITS)
    assert not mirror.prepare_step()
    mirror.expect()
    pieces = sum(1 for _ in iter(mirror.prepare_step, False))
    assert pieces > 3
    ready = mirror.base(NOBODY)
    assert ready.found is mirror.snapshot
    cluster.wait(3)
    cluster.put(replace(WAITS, priority=7))
    see(mirror, cluster)
    assert mirror.prepare_step()
    cluster.wait(1)
    cluster.put(replace(WAITS, priority=9))
    see(mirror, cluster)
    assert mirror.base(NOBODY) is ready
    while mirror.prepare_step():
        pass
    assert mirror.base(NOBODY).found.workloads[WAITS.key].priority == 7
    cluster.wait(600)
    cluster.put(WAITS)
    see(mirror, cluster)
    assert not mirror.prepare_step()


def test_whatever_is_under_way_the_answers_are_those_of_the_cluster_as_it_is() -> None:
    """A question comes after every piece; what it leaves behind goes on."""
    cluster, mirror = shown(*ORG, node("n1"), WAITS)
    mirror.expect()
    for number in range(8):
        for _ in range(number):
            mirror.prepare_step()
        cluster.wait(number)
        cluster.put(replace(WAITS, priority=number), waiting(f"w{number}", "prod/lq", 2))
        see(mirror, cluster)
        fresh = partial(Simulation.from_snapshot, mirror.snapshot, policy=cluster.policy, seed=0)
        *_, last = explain_pending(mirror.cluster(frozenset({WAITS.key})), WAITS.key)
        rehearsal = rehearsal_on(mirror.snapshot, DEFAULT)
        assert last.answer == tried(mirror.snapshot, rehearsal, WAITS.key, fresh)
        base = mirror.base(frozenset({WAITS.key}))
        assert base.found is mirror.snapshot
        question = (SetPriority(WAITS.key, 100),)
        assert complete_answer(what_if_steps(base.simulation, question, HOUR, found=base.completed)) == complete_answer(
            what_if_steps(fresh(), question, HOUR, found=mirror.snapshot)
        )


def test_what_cannot_be_understood_is_a_reply() -> None:
    desk = RequestHandler()
    assert isinstance(desk.reply(UpdateSnapshot(True, START, (b"?",), b"{}")), Failed)
    arguments = msgspec.Raw(ENCODER.encode(((Cordon("n1", True),), HOUR, (), ())))
    assert desk.reply(Question(number=1, analysis="try_commands", arguments=arguments)) == Done(same=False)


def test_what_is_told_of_many_that_ask_for_the_same_is_kept_once() -> None:
    mirror, asked = LiveReplica(), [waiting(name, "team/lq", 8) for name in ("one", "two")]
    told = tuple(ENCODER.encode([Applied(START, workload)]) for workload in asked)
    mirror.see(UpdateSnapshot(anew=True, time=START, news=told, policy=msgspec.json.encode(SimPolicy())))
    seen = list(mirror.snapshot.workloads.all())
    assert seen == asked
    assert seen[0].pod_sets[0] is seen[1].pod_sets[0]


def test_what_may_not_be_read_of_it_is_known_there_too(worker: Shown) -> None:
    """A queue that is only not seen is not missing in the answers of the worker either."""
    hidden = [thing for thing in ORG if not isinstance(thing, ClusterQueue)]
    cluster = Elsewhere((*hidden, waiting("new", "research/lq", 1)), START)
    cluster.poll(0)

    def code() -> PendingReason:
        *_, last = worker.ask(explain_pending, seen(cluster), "research/new")
        assert last.answer is not None
        return last.answer.why.code

    assert code() is PendingReason.QUEUE_MISSING
    cluster.missing = (Missing("list", "clusterqueues.kueue.x-k8s.io"),)
    assert code() is PendingReason.UNSEEN


def test_what_the_shadow_followed_and_the_console_told_are_the_same_objects() -> None:
    """A what-if starts from the queues that the shadow knows: objects that seem to be new would requeue them."""

    def told(*objects: Object) -> bytes:
        return ENCODER.encode([Applied(START, one) for one in objects])

    policy, handler = msgspec.json.encode(SimPolicy()), RequestHandler()
    cluster, later = (*ORG_QUEUES, WAITS), waiting("later", "prod/lq", 1)
    assert handler.reply(UpdateSnapshot(True, START, (told(*cluster),), policy)) == Done()
    assert handler.reply(BeginShadow(START, (told(*cluster),), policy)) == Done()
    assert isinstance(handler.reply(FollowChanges(told(later))), ShadowReply)
    assert handler.reply(UpdateSnapshot(False, START, (told(later),), policy)) == Done()
    reply = handler.reply(AskForecast(NOTHING, NOTHING, followed=True))
    assert isinstance(reply, ForecastReply)
    assert set(reply.forecast.prospects) == {WAITS.key, later.key}
    followed, mirror = handler._shadow, handler._mirror
    assert followed is not None
    assert change_events(followed.now()[0], mirror.snapshot) == []
