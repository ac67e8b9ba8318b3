"""A future in a process of its own is the future that it would be here, whatever becomes of the process."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from unittest.mock import patch

import pytest

from gpuconsole.insight.whatif.futures import Future, FutureRunner
from gpuconsole.insight.whatif.whatif import WhatIf, what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE, Time
from gpuconsole.model.commands import Command, Drain, FailNode, Later, SetPriority, SetQuota, Submit
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.workers import forked_future as workers_apart
from gpuconsole.workers.forked_future import ForkedFuture, fork_future
from tests.support.random_simulations import cluster
from tests.support.sim_cluster import START, USUAL, workload

CHANGES: dict[str, tuple[Command, ...]] = {
    "nothing": (),
    "urgent work": (Submit((workload("asked", gpus=4, duration="20m"),)), SetPriority("red/asked", 9)),
    "a drain, and a node that fails later": (Drain("n1"), Later(10 * MINUTE, FailNode("n2"))),
    "another quota": (SetQuota("blue", "a100", GPU, 8),),
    "what cannot be": (SetPriority("red/nobody", 3),),
}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="futures are lived apart on Linux only")


def crowd() -> Simulation:
    """More work than there are GPUs for, half an hour old."""
    base = Simulation.from_objects(cluster(), policy=USUAL, seed=3, start=START)
    base.submit(Submit(tuple(_work(number) for number in range(12))))
    base.advance(START + 30 * MINUTE)
    return base


def _work(number: int) -> Workload:
    return workload(f"w{number}", ("red", "blue")[number % 2], gpus=1 + number % 4, duration=f"{7 + 5 * number}m")


def asked(commands: Sequence[Command], against: Sequence[Command], *, apart: bool) -> list[Progress[WhatIf]]:
    made: list[ForkedFuture] = []
    found = []
    for look in what_if_steps(
        crowd(), commands, HOUR, against, elsewhere=(lambda one, end: _made(one, end, made)) if apart else None
    ):
        found.append(look)
        assert [one.process is None for one in made] == [look.last] * apart
    return found


def _made(future: Future, end: Time, made: list[ForkedFuture]) -> FutureRunner:
    made.append(ForkedFuture(future, end))
    return made[-1]


def everywhere_the_same() -> None:
    for name, commands in CHANGES.items():
        for against in ((), CHANGES["urgent work"]):
            here = asked(commands, against, apart=False)
            assert asked(commands, against, apart=True) == here, name
            assert here[-1].answer is not None
            assert here[-1].answer.empty == (commands == against), name


def lost_on_its_way() -> None:
    here = asked(CHANGES["another quota"], (), apart=False)
    made: list[ForkedFuture] = []
    there = []
    for look in what_if_steps(
        crowd(), CHANGES["another quota"], HOUR, elsewhere=lambda one, end: _made(one, end, made)
    ):
        there.append(look)
        if look.done == 15 * MINUTE and made[0].process is not None:
            os.kill(made[0].process, signal.SIGKILL)
    assert there == here


def forgotten_for_a_while() -> None:
    here = asked(CHANGES["another quota"], (), apart=False)
    made: list[ForkedFuture] = []
    with patch.object(workers_apart, "PATIENCE", 0.05):
        asking = what_if_steps(
            crowd(), CHANGES["another quota"], HOUR, elsewhere=lambda one, end: _made(one, end, made)
        )
        there = [next(asking), next(asking)]
        assert made[0].process is not None
        # Until it has ended, because nobody says a word.
        os.waitid(os.P_PID, made[0].process, os.WEXITED | os.WNOWAIT)
        there += asking
    assert there == here


def given_up() -> None:
    made: list[ForkedFuture] = []
    asking = what_if_steps(crowd(), CHANGES["urgent work"], HOUR, elsewhere=lambda one, end: _made(one, end, made))
    for _ in range(4):
        next(asking)
    process = made[0].process
    assert process is not None
    assert isinstance(asking, Iterator)
    asking.close()  # type: ignore[attr-defined]
    with pytest.raises(ChildProcessError):
        os.waitpid(process, 0)


def forked_where_that_is_safe() -> None:
    future = Future(crowd())
    way = fork_future(future, START + HOUR)
    assert isinstance(way, ForkedFuture) == (len(os.sched_getaffinity(0)) > 1)
    way.close()
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    assert fork_future(future, START + HOUR) is future
    stop.set()
    other.join()


TRIALS = (everywhere_the_same, lost_on_its_way, forgotten_for_a_while, given_up, forked_where_that_is_safe)


@pytest.mark.parametrize("trial", TRIALS)
def test_a_future_lived_apart_is(trial: Callable[[], None]) -> None:
    # In a process without other threads: only from such a one a fork is safe.
    process = multiprocessing.get_context("spawn").Process(target=trial)
    process.start()
    process.join()
    assert process.exitcode == 0
