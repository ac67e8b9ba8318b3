"""`gpuconsole why`: why a workload is pending, the quota arithmetic, and what would unblock it."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, subject_named
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.shortage import room_lines
from gpuconsole.insight.pending.why import (
    Mark,
    WhyPending,
    evidence_lines,
    flavor_lines,
    rehearsal_of,
    rehearsal_on,
    suggestion_texts,
    unblocking,
    why,
)
from gpuconsole.insight.unblock.changes import in_words
from gpuconsole.insight.unblock.placement_trial import PlacementResult
from gpuconsole.insight.unblock.search import Suggestions
from gpuconsole.model.clock import format_time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.names import called, named


@click.command()
@click.argument("workload")
@click.option("--quick", is_flag=True, help="Skip the search for changes that would unblock it.")
@answering
def command(asked: QuestionContext, workload: str, quick: bool) -> CommandAnswer:
    """Explain why a workload is pending and what would admit it.

    WORKLOAD is namespace/name of a Workload, a job or a pod, Kind/namespace/name of a job, or a unique name. FILES are
    manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. The engine tries to admit the workload
    on the current cluster; each suggestion was tried in a fork before it is shown.
    """
    kueue = asked.simulation.policy.kueue
    snapshot = asked.found or asked.simulation.snapshot()
    key = subject_named(snapshot, workload)
    rehearsal = rehearsal_of(asked.simulation, snapshot) if asked.found is None else rehearsal_on(snapshot, kueue)
    answer = why(snapshot, rehearsal, key, lambda: asked.simulation)
    found = None if quick else unblocking(snapshot, rehearsal, answer, lambda: asked.simulation)
    known = snapshot.workloads.get(answer.subject)
    waits = answer.code is PendingReason.UNSEEN or (known is not None and not known.reserved and not known.finished)
    return CommandAnswer(
        kind="Why",
        body=_body(answer, found, snapshot),
        lines=list(_text(answer, found, snapshot)),
        version=3,
        unknown=tuple(f"the engine's decision: {text}" for text in missing_for_admission(snapshot)) if waits else (),
    )


def _text(answer: WhyPending, found: Suggestions | None, snapshot: Snapshot) -> Iterator[str]:
    explanation = answer.explanation
    code = "not pending" if explanation.code is PendingReason.NOT_WAITING else explanation.code
    yield f"{called(explanation.subject)}  {code}" + (f"  in {explanation.queue}" if explanation.queue else "")
    yield f"  {named(explanation.headline)}"
    if explanation.position is not None:
        place = explanation.position
        yield f"  position {place.in_cluster_queue} of {place.of_cluster_queue} in {place.cluster_queue}"
    for title, lines in _sections(answer, found, snapshot):
        if lines:
            yield ""
            yield title
            yield from (f"  {named(line)}" for line in lines)


def _sections(answer: WhyPending, found: Suggestions | None, snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    yield "FLAVORS", list(flavor_lines(answer))
    yield "ARITHMETIC", [line for room in answer.rooms for line in room_lines(room)]
    if not answer.considered:
        yield "DETAILS", list(answer.explanation.lines)
    if found is not None:
        yield "WOULD UNBLOCK", [_marked(*explanation) for explanation in suggestion_texts(answer, found, snapshot)]
    yield "EVIDENCE", list(evidence_lines(answer, snapshot.time))


def _marked(mark: Mark, text: str) -> str:
    return f"  {mark} {text}" if mark == "⚠" else f"{mark} {text}" if mark else text


def _body(answer: WhyPending, found: Suggestions | None, snapshot: Snapshot) -> dict[str, Any]:
    explanation = answer.explanation
    return {
        "subject": explanation.subject,
        "code": explanation.code,
        "headline": explanation.headline,
        "cluster_queue": explanation.queue,
        "position": explanation.position,
        "parked": explanation.inadmissible,
        "never_fits": answer.never,
        "behind": answer.head,
        "considered": answer.considered,
        "arithmetic": [{**msgspec.to_builtins(room), "short": room.short} for room in answer.rooms],
        "details": () if answer.considered else explanation.lines,
        "evidence": [
            {**msgspec.to_builtins(one), "since": format_time(one.since) if one.since is not None else None}
            for one in answer.evidence
        ],
        "would_unblock": None if found is None else _unblocking(answer, found, snapshot),
    }


def _unblocking(answer: WhyPending, found: Suggestions, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "admitted_anyway": found.admitted_anyway,
        "complete": found.complete,
        "tried": found.tried,
        **_landing(found.landing),
        "suggestions": [
            {
                "text": in_words(one.steps, snapshot, answer.short),
                "steps": msgspec.to_builtins(one.steps),
                "preempts": one.others.preempted,
                "admitted_first": one.others.admitted_first,
                **_landing(one.landing),
            }
            for one in found.found
        ],
    }


def _landing(landing: PlacementResult) -> dict[str, Any]:
    return {"nodes": landing.nodes, "lacking": landing.text}
