"""`gpuconsole eta`: position and estimated start of a workload."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from gpuconsole.cli.answering import (
    CommandAnswer,
    QuestionContext,
    agreement_body,
    agreement_lines,
    answering,
    lines_of,
    whole_named,
)
from gpuconsole.cli.simulate import Duration
from gpuconsole.insight.data_gaps import PLACES, missing_for_forecast
from gpuconsole.insight.forecast.estimates import KEPT, Estimate, EstimateHistory, PastEstimate, calibrate, coverage
from gpuconsole.insight.forecast.eta import RUNS
from gpuconsole.insight.forecast.expected_start import Eta, corrected, current_position, expected_start, waits
from gpuconsole.insight.index.capacity import cohort_cycle
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.tables import counted, seconds
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time, format_span, format_time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.store import queries
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui.names import called, named

VERSION = 3
"""Version of the answer in the JSON document."""


@click.command()
@click.argument("workload")
@click.option(
    "--runs", type=click.IntRange(1, 1000), default=RUNS, show_default=True, help="Number of simulation runs."
)
@click.option("--horizon", type=Duration(least=MINUTE), default="3d", show_default=True, help="How far to look ahead.")
@click.option("--chance", type=int, default=0, show_default=True, help="Random seed of the runs.")
@answering
def command(asked: QuestionContext, workload: str, runs: int, horizon: Span, chance: int) -> CommandAnswer:
    """Estimate when a pending workload starts (80% interval), and show its position in the queues.

    WORKLOAD is namespace/name of a Workload, a job or a pod; the name is enough if it is unique. FILES are manifests,
    folders, a scenario, or the name of a bundled fixture; - is stdin. The estimate comes from many simulations that
    start from the present cluster; with --until, a simulated cluster first runs to get a history.
    """
    snapshot = asked.found or asked.simulation.snapshot()
    key = whole_named(snapshot, workload)
    if lacking := missing_for_forecast(snapshot, *PLACES):
        answer, explanation = current_position(snapshot, key), explain(snapshot, key)
        ended = not waits(answer, explanation) and explanation.code is not PendingReason.UNSEEN
        open_end = () if ended else tuple(f"ETA: {text}" for text in lacking)
        text = list(as_text(answer, known=not open_end))
        return CommandAnswer(
            kind="Eta",
            body=_body(answer),
            lines=text,
            version=VERSION,
            unknown=(*_misplaced(snapshot, answer), *open_end),
        )
    found = expected_start(asked.simulation, key, lines_of(asked), runs=runs, seed=chance, horizon=horizon)
    answer, counts = as_recorded(asked, found), asked.agreement
    return CommandAnswer(
        kind="Eta",
        body=_body(answer) | agreement_body(counts),
        lines=[*as_text(answer), *agreement_lines(counts)],
        version=VERSION,
        unknown=tuple(_misplaced(snapshot, answer)),
    )


def _misplaced(snapshot: Snapshot, answer: Eta) -> Iterator[str]:
    """The reason why it has no rank in its cohort, if cohorts form a cycle."""
    queue = snapshot.cluster_queues.get(answer.queue)
    if answer.position is not None and queue is not None and (why := cohort_cycle(snapshot, queue.cohort)):
        yield f"position in its cohort: {why}"


def as_recorded(asked: QuestionContext, answer: Eta) -> Eta:
    """Correct the estimate by how past estimates for this live cluster turned out, as recorded. Raises HistoryError."""
    if asked.mode != "live":
        return answer
    earlier = _earlier(asked)
    return corrected(answer, calibrate(earlier, answer.time), coverage(earlier, answer.time))


def as_text(answer: Eta, *, known: bool = True) -> Iterator[str]:
    """Format the answer as lines; `known` is false if the start cannot be estimated."""
    yield f"{called(answer.workload)}  {counted(answer.gpus, answer.unit)}  {answer.phase}" + (
        f"  in {answer.queue}" if answer.queue else ""
    )
    place = answer.position
    if place is not None:
        yield f"  position {place.in_local_queue} of {place.of_local_queue} in its LocalQueue"
        ahead = f", {counted(place.gpus_ahead, place.unit)} ahead of it" if place.gpus_ahead else ""
        rank = f"position {place.in_cluster_queue} of {place.of_cluster_queue}"
        yield f"  {rank} in ClusterQueue {place.cluster_queue}{ahead}"
    if answer.cohort is not None:
        rank = f"rank {answer.cohort.place} of {answer.cohort.of}"
        yield f"  {rank} in cohort {answer.cohort.cohort}, by priority and age only"
    start = answer.start
    if start is None:
        if known:
            yield "  not pending"
        return
    yield ""
    yield from (f"  {text}" for text in _when(answer, start))
    yield ""
    yield "BASED ON"
    far = format_span(start.horizon - start.asked)
    yield f"  {counted(start.runs, 'simulation')} from {seconds(answer.time)}, horizon {far}"
    yield f"  run times of {answer.goes_by}: {counted(answer.samples, 'sample')}"
    yield "ASSUMPTIONS"
    yield from (f"  {text}" for text in (*answer.assumptions, *answer.trust))


def _when(answer: Eta, start: Estimate) -> Iterator[str]:
    """The interval and the probabilities; if no run saw a start, the reason why the workload is pending."""
    if start.beyond:
        yield f"no start before {_moment(start, start.horizon)} in any of {counted(start.runs, 'run')}: no estimate"
        if answer.blocker is not None:
            yield f"{answer.blocker.code}: {named(answer.blocker.headline)}"
        return
    yield f"starts {_moment(start, start.interval.first)} – {_moment(start, start.interval.last)} (80% interval)"
    yield f"median {_moment(start, start.median)}"
    yield from (f"within {format_span(one.span)}: {one.probability:.0%}" for one in answer.within)
    if start.never:
        yield f"no start before {seconds(start.horizon)} in {start.never} of {counted(start.runs, 'run')}"


def _earlier(asked: QuestionContext) -> Sequence[PastEstimate]:
    """The console's earlier estimates for this live cluster, with the actual starts. Raises HistoryError."""
    found: list[PastEstimate] = []
    # Earlier versions recorded all clusters in one file.
    for path in (asked.settings.history_file, asked.settings.live_history_file(asked.source)):
        if path.exists():
            with earlier_sessions(path) as db:
                found += queries.estimates(db, asked.source, KEPT)
    if not found:
        return ()
    memory = EstimateHistory(found[-KEPT:])
    memory.record_starts(asked.found or asked.simulation.snapshot())
    return memory.earlier


def _moment(start: Estimate, time: Time) -> str:
    return f"{seconds(time)} (in {format_span((time - start.asked) // SECOND * SECOND)})"


def _body(answer: Eta) -> dict[str, Any]:
    """The answer in the JSON document; times as RFC 3339, durations in seconds."""
    place, cohort, start, blocker = answer.position, answer.cohort, answer.start, answer.blocker
    return {
        "workload": answer.workload,
        "queue": answer.queue,
        "gpus": answer.gpus,
        "unit": answer.unit,
        "phase": answer.phase,
        "position": place,
        "cohort": cohort,
        "estimate": {
            "early": None if start.beyond else format_time(start.interval.first),
            "median": None if start.beyond else format_time(start.median),
            "late": None if start.beyond else format_time(start.interval.last),
            "covers": 0.8,
            "calibrated_by": start.calibrated_by,
            "earlier": answer.record,
            "uncalibrated": None
            if start.beyond
            else {"early": format_time(start.raw.first), "late": format_time(start.raw.last)},
            "horizon": format_time(start.horizon),
            "runs": start.runs,
            "runs_beyond_horizon": start.never,
            "waits_because": {"code": blocker.code, "headline": blocker.headline} if blocker is not None else None,
            "within": [{"span_seconds": one.span / SECOND, "probability": one.probability} for one in answer.within],
        }
        if start is not None
        else None,
        "goes_by": {
            "group": answer.goes_by,
            "ends": answer.samples,
            "ends_in_cluster": answer.past_runs,
            "arrivals": answer.arrivals,
            "arrivals_seconds": answer.arrivals_span / SECOND,
        },
        "assumptions": (*answer.assumptions, *answer.trust),
    }
