"""A what-if is run again with other latencies of the controllers: it says what depends on these, and leaves it out."""

from collections.abc import Callable, Sequence
from itertools import count

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.cli.whatif import as_body, as_text
from gpuconsole.insight.whatif.answer import TimeRange, in_runs, verdict
from gpuconsole.insight.whatif.futures import FutureEvents
from gpuconsole.insight.whatif.whatif import (
    OTHER_LATENCIES,
    RUNS,
    StartShift,
    WhatIf,
    unexplained,
    what_if_steps,
)
from gpuconsole.model.clock import HOUR, MILLISECOND, MINUTE, SECOND, Span, format_tenths
from gpuconsole.model.commands import Command, Drain, Later, SetActive, SetPriority, Submit
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, Latencies
from gpuconsole.ui.screens.whatif import result_lines
from tests.support.sim_cluster import START, job, queue
from tests.support.snapshots import A100, node

NOW = START + 30 * MINUTE


def borrowed(*names: str, latencies: Latencies | None = MEASURED) -> Simulation:
    """Blue owns eight GPUs of a node and runs nothing; jobs of red have borrowed them for half an hour."""
    objects: list[Object] = [A100, node("n1"), *queue("red", 0), *queue("blue", 8)]
    gpus = 8 // len(names)
    objects += [replace(job(name, gpus=gpus, duration=10 * HOUR), created=START) for name in names]
    simulation = Simulation.from_objects(objects, policy=SimPolicy(latencies=latencies), seed=1, start=START)
    simulation.advance(NOW)
    return simulation


def owner(name: str = "owner", gpus: int = 8) -> Job:
    return replace(job(name, "blue", gpus=gpus, duration=HOUR), created=NOW)


def asked(
    simulation: Simulation,
    *commands: Command,
    horizon: Span = 10 * MINUTE,
    clock: Callable[[], float] = lambda: 0.0,
) -> WhatIf:
    return complete_answer(what_if_steps(simulation, commands, horizon, clock=clock))


def test_without_latencies_there_is_one_run_and_no_range() -> None:
    seen = list(what_if_steps(borrowed("guest", latencies=None), (Submit((owner(),)),), 10 * MINUTE))
    answer = complete_answer(seen)
    assert all(look.doing != OTHER_LATENCIES for look in seen)
    assert (answer.runs, answer.varying_victims) == (1, ())
    assert [(one.admitted_range, one.started_range) for one in answer.outcomes] == [(None, None)]
    assert " starts in 30s; preempts red/job-guest" in verdict(answer)


def test_a_preemptor_is_admitted_when_quota_is_released_and_starts_when_pods_are_gone() -> None:
    """30 s of grace: the quota of a Job is free long before its nodes are."""
    answer = asked(borrowed("guest"), Submit((owner(),)))

    (outcome,), (victim,) = answer.outcomes, answer.victims
    admitted, started = outcome.admitted_range, outcome.started_range
    assert admitted is not None
    assert started is not None
    assert (answer.runs, admitted.times, admitted.runs, started.times, started.runs) == (1 + RUNS,) * 5
    assert NOW + 600 * MILLISECOND < admitted.earliest < admitted.latest < NOW + 3500 * MILLISECOND
    assert NOW + 30 * SECOND < started.earliest < started.latest < NOW + 35 * SECOND
    assert outcome.admitted is not None
    assert outcome.started is not None
    assert admitted.earliest <= outcome.admitted <= admitted.latest
    assert started.earliest <= outcome.started <= started.latest
    assert victim.released is not None
    assert victim.pods_gone is not None
    assert victim.first == NOW < victim.released <= outcome.admitted
    assert NOW + 30 * SECOND < victim.pods_gone <= outcome.started
    assert (answer.varying_victims, answer.evictions[0].released) == ((), victim.released)


def test_the_same_question_has_the_same_ranges() -> None:
    one, other = (asked(borrowed("guest"), Submit((owner(),))) for _ in range(2))
    assert one == other


def test_the_simulation_that_is_asked_about_may_go_on_meanwhile() -> None:
    simulation = borrowed("guest")
    trial = what_if_steps(simulation, (Submit((owner(),)),), 10 * MINUTE, clock=lambda: 0.0)
    first = next(trial)
    simulation.advance(NOW + HOUR)
    assert complete_answer([first, *trial]) == asked(borrowed("guest"), Submit((owner(),)))


def test_the_whole_answer_comes_before_the_ranges() -> None:
    *_, whole, last = what_if_steps(borrowed("guest"), (Submit((owner(),)),), 10 * MINUTE, clock=lambda: 0.0)
    assert whole.answer is not None
    assert last.answer is not None
    assert (whole.doing, whole.done, whole.total, whole.last) == (OTHER_LATENCIES, 0, RUNS, False)
    assert (last.done, last.last) == (10 * MINUTE, True)
    assert whole.answer.evictions == last.answer.evictions
    assert [one.admitted for one in whole.answer.outcomes] == [one.admitted for one in last.answer.outcomes]


@pytest.mark.parametrize(("piece", "runs"), [(10.0, 1), (0.1, 2), (0.001, 1 + RUNS)])
def test_runs_end_with_their_cpu_time_and_the_answer_says_how_many_there_were(piece: float, runs: int) -> None:
    """Each piece of a run takes so many seconds; a run takes about a dozen of them."""
    calls = count()
    answer = asked(borrowed("guest"), Submit((owner(),)), clock=lambda: piece * ((next(calls) + 1) // 2))
    (outcome,) = answer.outcomes
    assert outcome.admitted_range is not None
    assert (answer.runs, outcome.admitted_range.runs) == (runs, runs)
    assert f"({runs} run)" in verdict(answer) if runs == 1 else f"in {runs} runs)" in verdict(answer)


def test_work_that_runs_already_needs_no_other_run() -> None:
    simulation = borrowed("guest")
    running = next(iter(simulation.snapshot().workloads.all()))
    for command in (SetPriority(running.key, 1000), Drain("n1")):
        seen = list(what_if_steps(simulation, (command,), MINUTE, clock=lambda: 0.0))
        assert all(look.doing != OTHER_LATENCIES for look in seen)
        assert complete_answer(seen).runs == 1


def test_what_is_preempted_in_some_runs_only_is_told() -> None:
    """What waits takes the quota of a stopped job a moment before or after the owner comes: the latencies decide."""
    base = borrowed("stopped", "stays")
    stopped = next(one.key for one in base.snapshot().workloads.all() if "stopped" in one.key)
    base.submit(Submit((replace(job("next", gpus=4, duration=10 * HOUR), created=NOW),)))
    late = Later(1150 * MILLISECOND, Submit((owner(gpus=4),)))
    answer = asked(base, SetActive(stopped, active=False), late)

    (varying,) = answer.varying_victims
    assert (varying.workload.startswith("red/job-next"), varying.queue, varying.gpus, varying.runs) == (
        *(True, "red", 4),
        1 + RUNS,
    )
    assert 0 < varying.times < varying.runs
    assert varying.by == (answer.outcomes[0].workload,)
    first = {one.workload for one in answer.victims}
    words = f"{varying.times} of {varying.runs} runs"
    assert (f"(4 GPUs, in {words}, loses" in verdict(answer)) is (varying.workload in first)
    other = replace(answer, evictions=())
    assert f"in {words} also preempts {varying.workload}" in verdict(other)


def line(what: HistoryEventKind, workload: str, after: Span) -> HistoryEvent:
    return HistoryEvent(time=NOW + after, what=what, workload=workload)


def course(**admitted: Span) -> FutureEvents:
    found = FutureEvents(begun=NOW)
    found.admitted = {name: [line(HistoryEventKind.ADMITTED, name, after)] for name, after in admitted.items()}
    return found


def shift(without: Span | None, changed: Span | None) -> StartShift:
    before, after = (None if span is None else NOW + span for span in (without, changed))
    return StartShift(workload="a", queue="cq", gpus=1, without=before, changed=after)


@pytest.mark.parametrize(
    ("without", "changed", "runs", "kept"),
    [
        (MINUTE, MINUTE + 999 * MILLISECOND, (), False),
        (MINUTE, MINUTE - SECOND, (), True),
        (MINUTE, None, (), True),
        (None, HOUR - 500 * MILLISECOND, (), False),
        (None, HOUR - MINUTE, (), True),
        (MINUTE, 20 * SECOND, (40 * SECOND,), True),
        (MINUTE, 20 * SECOND, (40 * SECOND, 2 * MINUTE), False),
    ],
)
def test_only_what_latencies_do_not_explain_is_called_another_time(
    without: Span | None, changed: Span | None, runs: Sequence[Span], kept: bool
) -> None:
    one = shift(without, changed)
    assert unexplained([one], NOW + HOUR, SECOND, [course(a=after) for after in runs]) == ((one,) if kept else ())


@pytest.mark.parametrize(
    ("earliest", "latest", "times", "runs", "words"),
    [
        (600, 2300, 5, 5, " (0.6s to 2.3s in 5 runs)"),
        (29_400, 33_900, 4, 5, " (29s to 33s in 4 of 5 runs)"),
        (1000, 1000, 5, 5, ""),
        (1000, 1050, 5, 5, ""),
        (1000, 1050, 3, 5, " (1s in 3 of 5 runs)"),
        (1000, 1000, 1, 1, " (1 run)"),
    ],
)
def test_a_range_in_words(earliest: int, latest: int, times: int, runs: int, words: str) -> None:
    found = TimeRange(earliest=NOW + earliest * MILLISECOND, latest=NOW + latest * MILLISECOND, times=times, runs=runs)
    assert in_runs(found, NOW) == words


def test_text_screen_and_document_have_the_same_ranges() -> None:
    answer = asked(borrowed("guest"), Submit((owner(),)))
    outcome = answer.outcomes[0]
    admitted, started = in_runs(outcome.admitted_range, NOW), in_runs(outcome.started_range, NOW)
    assert admitted.endswith(" in 5 runs)")
    assert f" starts in 30s{started}; preempts red/job-guest" in verdict(answer)

    text = as_text(answer)
    assert text[1].endswith("; feasible, nothing is reserved; 5 runs with different controller latencies")
    assert f"admitted at +{format_tenths((outcome.admitted or 0) - NOW)}{admitted} from a100 on n1" in text[2]
    assert text[2].endswith(f", starts at +30s{started}")
    assert text[4].split()[:8] == ["DIRECT", "VICTIMS", "QUEUE", "GPUS", "TIMES", "FIRST", "RELEASED", "PODS"]

    screen = "\n".join(str(painted) for painted in result_lines(answer))
    assert f"s{admitted} from a100 on n1, starts at +30s{started}" in screen
    assert "5 runs with different controller latencies" in screen
    assert "quota released at +" in screen

    document = as_body(answer)
    assert (document["runs"], len(document["varying_victims"])) == (5, 0)
    (told,) = document["outcomes"]
    assert set(told["admitted_range"]) == {"earliest", "latest", "times", "runs"}
    assert told["admitted_range"]["earliest"].startswith("2026-01-05T08:30:0")
    assert (told["started_range"]["times"], told["started_range"]["runs"]) == (5, 5)
    assert document["victims"][0]["pods_gone"].startswith("2026-01-05T08:30:30.")
    json_form = msgspec.json.decode(msgspec.json.encode(document))
    assert json_form["outcomes"][0]["admitted_range"] == told["admitted_range"]
