"""The worker process: its replica stays equal, its answers are those of the simulation, and its end is said."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.errors import WorkerError
from gpuconsole.insight.forecast.estimates import start_estimate_steps
from gpuconsole.insight.forecast.forecast import outlook_steps
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import rehearsal_of, trying
from gpuconsole.insight.preemption.risk import eviction_risk_steps
from gpuconsole.insight.whatif.plan import plan, plan_steps
from gpuconsole.insight.whatif.whatif import what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Cordon, SetWeight, Submit
from gpuconsole.model.cooperative import Progress, complete_answer
from gpuconsole.model.events import Event
from gpuconsole.services.console import Console
from gpuconsole.sim.engine import Simulation
from gpuconsole.workers import client as priority_lock
from gpuconsole.workers.client import Worker
from gpuconsole.workers.protocol import (
    ENCODER,
    AnswerPiece,
    Begin,
    Carried,
    Done,
    Failed,
    NextPiece,
    Question,
    ReplaySteps,
    estimate_starts,
    explain_pending,
    find_plan,
    try_commands,
)
from gpuconsole.workers.replica import Replica, RequestHandler
from tests.support.contended_cluster import job, simulation
from tests.support.recorded_events import START

QUESTION = (Submit((job("asked", 8, 30),)),)


def question(number: int, analysis: Callable[..., object], *arguments: object, **fields: Any) -> Question:
    raw = msgspec.Raw(ENCODER.encode(arguments))
    return Question(number=number, analysis=analysis.__name__, arguments=raw, **fields)


def what_if_question(number: int, **fields: Any) -> Question:
    return question(number, try_commands, QUESTION, HOUR, (), (), **fields)


def piece(progress: Progress[Any]) -> AnswerPiece:
    return AnswerPiece(msgspec.Raw(ENCODER.encode(progress)))


class Beside:
    """A console with a worker beside it; its clock stands, so that no budget is ever spent."""

    def __init__(self) -> None:
        original = simulation()
        self.worker = Worker()
        self.worker.introduce(original.save())
        self.backend = SimulatedBackend(original, speed=1000, follower=self.worker, clock=lambda: 0.0)
        self.console = Console(self.backend, worker=self.worker)

    def tick_until_the_worker(self, ends: bool) -> None:
        """Let time pass until the worker's end, or a new beginning, is known."""
        patience = time.monotonic() + 30
        while not (self.worker.lost if ends else self.worker.begun > 1):
            assert time.monotonic() < patience
            self.console.tick(0.01)
            time.sleep(0.01)


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.console.stop()


def test_what_it_refuses_has_its_place(beside: Beside) -> None:
    found = complete_answer(beside.console.answers.looks([SetWeight("cq-nobody", -1)], MINUTE, (), ["the first step"]))
    assert [text.partition(": ")[0] for text in found.refused] == ["the first step"]


def test_it_answers_as_the_simulation_itself_would_after_commands_at_odd_times(beside: Beside) -> None:
    for number in range(5):
        beside.console.submit(Submit((job(f"late-{number}", 1 + number, 7),)))
        beside.console.tick(0.137 * number)
        expected = complete_answer(what_if_steps(beside.backend.fork(), QUESTION, HOUR))
        assert complete_answer(beside.console.answers.looks(QUESTION, HOUR)) == expected
        assert expected.time == beside.console.snapshot.time
    assert beside.console.status.worker == "on"


def test_it_says_why_something_waits_as_the_simulation_itself_would(beside: Beside) -> None:
    beside.console.submit(Submit((job("much", 64, 30),)))
    beside.console.tick(0.5)
    fork = beside.backend.fork()
    snapshot = fork.snapshot()
    key = next(workload.key for workload in snapshot.workloads.all() if workload.owner.endswith("/much"))
    pieces = list(beside.console.answers.why(key))
    assert pieces == list(trying(snapshot, rehearsal_of(fork, snapshot), key, lambda: fork))
    assert [(one.doing, one.done) for one in pieces[:2]] == [
        ("stopped objects and namespaces", 0),
        ("end of other workloads", 1),
    ]
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    answer = pieces[-1].answer
    assert answer is not None
    assert answer.why.code is PendingReason.EXCEEDS_MAX
    assert answer.suggestions is not None
    assert answer.suggestions.found


def test_it_says_when_something_starts_as_the_simulation_itself_would(beside: Beside) -> None:
    beside.console.submit(Submit((job("much", 16, 30), job("more", 16, 30))))
    beside.console.tick(0.5)
    fork = beside.backend.fork()
    keys = [workload.key for workload in fork.snapshot().workloads.all()]
    answers = {key: list(beside.console.answers.ahead(key))[-1] for key in keys}
    assert answers == {key: list(outlook_steps(fork, key))[-1] for key in keys}
    assert any(piece.answer is not None and piece.answer.runs for piece in answers.values())


def test_it_says_when_all_that_waits_starts_as_the_simulation_itself_would(beside: Beside) -> None:
    beside.console.submit(Submit((job("much", 16, 30), job("more", 16, 30))))
    beside.console.tick(0.7)  # By then work has ended.
    pieces = list(beside.console.answers.outlook())
    assert pieces == list(start_estimate_steps(beside.backend.fork()))
    assert [piece.last for piece in pieces[-2:]] == [False, True]
    assert pieces[-1].answer is not None
    assert len(pieces[-1].answer.estimates) > 1


def test_it_foretells_risks_run_by_run_as_the_simulation_itself_would(beside: Beside) -> None:
    beside.console.tick(0.5)
    *pieces, last = beside.console.answers.risk()
    *expected, whole = eviction_risk_steps(beside.backend.fork())
    assert pieces == expected[: len(pieces)]
    # The worker ends the runs early if the machine is too slow, and says so.
    assert last == whole or (last.answer is not None and last.answer.runs < last.answer.wanted_runs)


def test_it_plans_as_the_simulation_itself_would(beside: Beside) -> None:
    beside.console.tick(0.5)
    *_, last = beside.console.answers.plan(QUESTION, HOUR)
    assert last.answer == plan(beside.backend.fork(), QUESTION, HOUR)


def test_nothing_is_run_forward_where_there_is_no_worker() -> None:
    console = Console(SimulatedBackend(simulation(), speed=1000, clock=lambda: 0.0))
    assert (
        list(console.answers.ahead("default/anything")),
        list(console.answers.outlook()),
        console.answers.foretells,
    ) == ([], [], False)
    console.stop()


def test_a_killed_worker_is_said_and_the_answers_come_from_here(beside: Beside) -> None:
    beside.console.tick(1)
    beside.worker.process.kill()
    beside.tick_until_the_worker(ends=True)
    assert beside.console.status.worker == "the worker process died"
    assert complete_answer(beside.console.answers.looks(QUESTION, HOUR)) == complete_answer(
        what_if_steps(beside.backend.fork(), QUESTION, HOUR)
    )


def test_a_worker_that_dies_over_a_question_is_no_loss(beside: Beside) -> None:
    beside.console.tick(1)
    beside.worker.process.kill()
    assert complete_answer(beside.console.answers.looks(QUESTION, HOUR)) == complete_answer(
        what_if_steps(beside.backend.fork(), QUESTION, HOUR)
    )
    with pytest.raises(WorkerError, match="the worker process died"):
        next(beside.worker.ask(try_commands, None, QUESTION, HOUR, (), ()))


def test_others_may_ask_between_two_looks_and_the_simulation_may_go_on(beside: Beside) -> None:
    expected = complete_answer(what_if_steps(beside.backend.fork(), QUESTION, HOUR))
    trial = beside.console.answers.looks(QUESTION, HOUR)
    next(trial)
    beside.console.tick(1)
    assert complete_answer(beside.console.answers.looks(QUESTION, HOUR)).time > expected.time
    with pytest.raises(WorkerError, match="another request"):
        next(trial)


def test_what_somebody_waits_for_comes_before_when_things_start(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_lock, "LONGEST", 600.0)
    beside.console.submit(Submit((job("much", 16, 30), job("more", 16, 30))))
    beside.console.tick(0.7)
    key = next(workload.key for workload in beside.console.snapshot.workloads.all() if not workload.reserved)
    answer = beside.worker.ask(explain_pending, None, key)
    next(answer)
    came: list[str] = []
    column = threading.Thread(target=lambda: came.extend("starts" for _ in beside.worker.ask(estimate_starts, None)))
    column.start()
    came.extend("why" for _ in answer)
    column.join()
    assert came == sorted(came, reverse=True)
    assert {*came} == {"why", "starts"}


def test_a_replica_that_went_its_own_way_starts_anew(beside: Beside) -> None:
    beside.console.tick(1)
    beside.worker.carried(beside.backend.now, Cordon("node-0", True))
    beside.console.tick(1)
    beside.tick_until_the_worker(ends=False)
    assert complete_answer(beside.console.answers.looks(QUESTION, HOUR)) == complete_answer(
        what_if_steps(beside.backend.fork(), QUESTION, HOUR)
    )
    assert beside.console.status.worker == "on"


def test_closing_ends_the_process() -> None:
    made = Beside()
    process = made.worker.process
    pid = process.pid
    made.console.stop()
    assert pid is not None
    with pytest.raises(ValueError, match="process object is closed"):
        process.is_alive()


class TestReplica:
    """The worker's side, without a process."""

    def followed(self) -> tuple[Simulation, Replica, SimulatedBackend]:
        original = simulation()
        replica = Replica(Begin(original.save(), 0))
        backend = SimulatedBackend(original, speed=1000, clock=lambda: 0.0)
        backend.open()
        return original, replica, backend

    def poll(self, backend: SimulatedBackend, elapsed: float) -> list[Event]:
        return list(backend.poll(elapsed))

    def test_it_says_whether_the_same_came_of_the_same(self) -> None:
        _, replica, backend = self.followed()
        self.poll(backend, 0.5)
        assert replica.follow(ReplaySteps((), backend.now, backend.digest))
        command = Submit((job("late", 2, 5),))
        backend.submit(command)
        at = backend.now
        self.poll(backend, 0.5)
        assert replica.follow(ReplaySteps((Carried(at, command),), backend.now, backend.digest))
        self.poll(backend, 0.5)
        assert not replica.follow(ReplaySteps((Carried(backend.now, command),), backend.now, backend.digest))

    def object_access(self) -> tuple[Simulation, RequestHandler]:
        original = simulation()
        desk = RequestHandler()
        assert desk.reply(Begin(original.save(), 0)) == Done()
        return original, desk

    def test_it_does_not_answer_from_a_replica_that_differs(self) -> None:
        _, desk = self.object_access()
        assert desk.reply(what_if_question(1, follow=ReplaySteps((), START, 1))) == Done(same=False)

    def test_it_answers_look_by_look_from_where_it_stands_if_there_is_no_news(self) -> None:
        original, desk = self.object_access()
        found = list(what_if_steps(original.fork(), QUESTION, HOUR))
        said = [desk.reply(what_if_question(1)), *(desk.reply(NextPiece(1)) for _ in found[1:])]
        assert said == [piece(look) for look in found]

    def test_questions_of_several_kinds_are_answered_in_turns(self) -> None:
        original, desk = self.object_access()
        futures = list(what_if_steps(original.fork(), QUESTION, HOUR))
        plans = list(plan_steps(original.fork(), QUESTION, HOUR))
        said = [desk.reply(what_if_question(1)), desk.reply(question(2, find_plan, QUESTION, HOUR))]
        assert said == [piece(futures[0]), piece(plans[0])]
        for look in futures[1:]:
            assert desk.reply(NextPiece(1)) == piece(look)
        for progress in plans[1:]:
            assert desk.reply(NextPiece(2)) == piece(progress)
        assert plans[-1].last

    def test_a_new_what_if_takes_the_place_of_the_last(self) -> None:
        _, desk = self.object_access()
        desk.reply(what_if_question(1))
        desk.reply(what_if_question(2))
        assert desk.reply(NextPiece(1)) == Failed("replaced by another request")
        assert isinstance(desk.reply(NextPiece(2)), AnswerPiece)
