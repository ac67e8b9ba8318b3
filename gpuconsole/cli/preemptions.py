"""`gpuconsole preemptions`: preemption history with victim, preemptor, rule, candidates and lost work."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from gpuconsole.cli.answering import CommandAnswer, Origin, QuestionContext, answering, lines_of, nothing_said, say
from gpuconsole.cli.bundled import fixtures
from gpuconsole.cli.options import OpenRequest, configured
from gpuconsole.cli.preemptions_report import Body, PreemptionEntry, as_document, as_text
from gpuconsole.cli.subjects import subject_named
from gpuconsole.errors import UsageError
from gpuconsole.insight.index.unqueued_work import pods_of
from gpuconsole.insight.preemption.history import PreemptionRow, about, chain, preemption_stats, rows
from gpuconsole.model.clock import SECOND, format_time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.services.status import ConsoleMode
from gpuconsole.store import queries
from gpuconsole.store import recorder as sessions
from gpuconsole.store.schema import earlier_sessions

VERSION = 5
RECORDED = 10_000
UNRECORDED = "no session has been recorded; the console records its history while it runs"


def _naming(function: Callable[..., int]) -> Callable[..., int]:
    """Accept a workload name as first of FILES if no such file exists; with --history, open no cluster."""

    @click.option("--history", is_flag=True, help="Read the console's last recorded session.")
    @wraps(function)
    def command(files: tuple[str, ...], history: bool, output: str, **options: Any) -> int:
        alone = history or options["live"] or options["snapshot"] is not None
        named = files and _names(files[0], has_cluster=bool(files[1:]) or alone)
        workload, files = (files[0], files[1:]) if named else ("", files)
        if not history:
            return function(files=files, output=output, workload=workload, **options)
        if files or options["live"] or options["snapshot"] is not None:
            raise UsageError("--history reads the recorded session; omit FILES, --live and --snapshot")
        origin, lines, unseen = recorded()
        return say(origin, replace(answer_about(lines, workload, EMPTY), unknown=_others(unseen)), output)

    return command


def _names(text: str, *, has_cluster: bool) -> bool:
    """True for `namespace/name` that is not a file; also for a bare name if a cluster is given (`beside`)."""
    path = Path(text)
    if not path.parts or path.is_absolute() or path.suffix or path.exists():
        return False
    return len(path.parts) > 1 or (has_cluster and text not in fixtures())


@click.command()
@_naming
@answering
def command(asked: QuestionContext, workload: str) -> CommandAnswer:
    """Show preemptions: victim, preemptor, rule, lost work.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; --until simulates it first. A workload
    before them (`namespace/name`) limits the list to its preemptions, as victim or preemptor, and shows the candidates.
    --history reads what the console recorded, which outlives the cluster's events.
    """
    seen = asked.seen
    if all(seen.is_unlisted(kind) for kind in (Workload, HistoryEvent)):
        return nothing_said("Preemptions", seen.missing_reasons(Workload, HistoryEvent), VERSION)
    answer = answer_about(lines_of(asked), workload, asked.simulation.snapshot())
    return replace(answer, unknown=_others(seen.missing_reasons(Workload, HistoryEvent)))


def _others(lacking: Iterable[str]) -> tuple[str, ...]:
    """The parts of the answer that are unknown because of missing permissions."""
    return tuple(f"other preemptions: {text}" for text in lacking)


def answer_about(lines: Sequence[HistoryEvent], workload: str, snapshot: Snapshot) -> CommandAnswer:
    """The preemptions among these lines (oldest first), optionally of one workload, job or pod only.

    Raises UsageError for a name that neither the lines nor the current cluster have.
    """
    everything = rows(lines)
    name = subject_named(snapshot, workload, _names_in(everything)) if workload else ""
    found = about(everything, {name, *pods_of(snapshot, name)}) if name else everything
    summary = preemption_stats(found)
    body = Body(name, summary, tuple(_preemption(row, everything) for row in found))
    return CommandAnswer(kind="Preemptions", body=as_document(body), lines=as_text(body), version=VERSION)


def _names_in(found: Iterable[PreemptionRow]) -> Collection[str]:
    return dict.fromkeys(name for row in found for name in (row.victim, row.by))


def recorded() -> tuple[Origin, Sequence[HistoryEvent], Sequence[str]]:
    """The preemptions of the newest recorded session, oldest line first, and why some may be missing.

    Raises UsageError, HistoryError.
    """
    _, settings = configured(OpenRequest())
    if not settings.history_file.exists():
        raise UsageError(UNRECORDED)
    with earlier_sessions(settings.history_file) as db:
        session = sessions.newest(db)
        if session is None:
            raise UsageError(UNRECORDED)
        lines = tuple(queries.preemptions(db, session.number, RECORDED).values())
    staged = session.mode == ConsoleMode.SIM
    origin = Origin(source=session.source, mode="recorded", now=session.last, staged=staged)
    return origin, lines, session.unseen


def _preemption(row: PreemptionRow, everything: Sequence[PreemptionRow]) -> PreemptionEntry:
    return PreemptionEntry(
        time=format_time(row.time),
        victim=row.victim,
        victim_queue=row.victim_queue,
        victim_path=row.path,
        victim_priority=row.priority,
        gpus=row.gpus,
        unit=row.unit,
        by=row.by,
        by_queue=row.by_queue,
        by_path=row.by_path,
        by_priority=row.by_priority,
        reason=row.reason,
        rule=row.rule,
        lost_gpu_hours=row.lost_gpu_hours,
        cost=row.cost,
        freed_after_seconds=row.latency / SECOND if row.latency is not None else None,
        freed_at_most=row.at_most,
        freed_unknown=row.unseen,
        by_known=row.by_known,
        by_admitted=format_time(row.admitted_at) if row.admitted_at is not None else None,
        in_vain=row.in_vain,
        nth=row.nth,
        thrash=row.thrash,
        chain=chain(row, everything),
        message=row.message,
        choice=replace(row.choice, as_of=0) if row.choice is not None else None,
        choice_as_of=format_time(row.choice.as_of) if row.choice is not None and row.choice.as_of else None,
    )
