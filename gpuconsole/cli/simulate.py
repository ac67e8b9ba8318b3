"""`gpuconsole simulate`: runs the simulator headless and prints a report or the events.

The report has event counts, a row per queue and a row per workload; as JSON also the events, which `-o jsonl` prints
alone. `--cycles` instead runs single scheduling cycles for conformance tests.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from msgspec import Struct, to_builtins

from gpuconsole.cli.options import OpenRequest, clustered, configured, print_json
from gpuconsole.cli.sources import misread_expectations, open_simulation
from gpuconsole.errors import SourceError, UsageError
from gpuconsole.insight.cost.rates import MachinePool, pools
from gpuconsole.insight.index.demand import amount_of
from gpuconsole.insight.index.pods import phase_of
from gpuconsole.insight.preemption.history import NOTHING_LOST, LostWork, lost_by_one
from gpuconsole.insight.tables import Cell, text_table
from gpuconsole.model.clock import SECOND, Span, Time, format_exactly, format_span, format_time, parse_span
from gpuconsole.model.devices import WHOLE_GPU, device_cell, short_amount
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.conformance_run import run_lines
from gpuconsole.sim.engine import Simulation, write_snapshot
from gpuconsole.ui.names import called

_STATES = {
    HistoryEventKind.SUBMITTED: "pending",
    HistoryEventKind.PENDING: "pending",
    HistoryEventKind.RESERVED: "quotaReserved",
    HistoryEventKind.ADMITTED: "admitted",
    HistoryEventKind.STARTED: "running",
    HistoryEventKind.EVICTED: "evicted",
    HistoryEventKind.REQUEUED: "pending",
    HistoryEventKind.FINISHED: "finished",
    HistoryEventKind.FAILED: "failed",
    HistoryEventKind.DELETED: "deleted",
}
"""Kind of event → state of its workload afterwards."""


VERSION = 4
"""Of the document of `-o json`: a workload's state is its phase by Kueue's conditions and its pods since 2; since 3
`gpus` counts what `unit` names, since 4 also of `pools`."""


class EventRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `-o jsonl`: unset fields are omitted, `t` is RFC 3339."""

    t: str
    type: str
    workload: str
    queue: str
    by: str | None = None
    reason: str | None = None
    gpus: int | None = None
    unit: str = WHOLE_GPU.noun
    """What `gpus` counts; left out for GPUs."""
    node: str | None = None


class Detail(EventRecord, frozen=True, kw_only=True, omit_defaults=True):
    """An event of `-o json`: an `EventRecord` with its pod and the scheduler's message."""

    pod: str | None = None
    message: str | None = None


def record(line: HistoryEvent) -> EventRecord:
    """Return an event in the short form of `-o jsonl`; a pod without a Workload object counts as its own workload."""
    return EventRecord(**_facts(line))


def _detail(line: HistoryEvent) -> Detail:
    pod = line.pod if line.workload not in ("", line.pod) else ""
    return Detail(**_facts(line), pod=pod or None, message=line.message or None)


def _facts(line: HistoryEvent) -> dict[str, Any]:
    return {
        "t": format_time(line.time),
        "type": line.what.value,
        "workload": line.workload or line.pod,
        "queue": line.queue,
        "by": line.by or None,
        "reason": line.reason or None,
        "gpus": line.gpus or None,
        "unit": line.unit,
        "node": line.node or None,
    }


class QueueRow(Struct, rename="camel"):
    """Totals of a queue in the report. Mutable while events are added up."""

    queue: str
    admitted: int = 0
    preempted: int = 0
    evicted: int = 0
    finished: int = 0
    waited: Span = 0
    """Sum of the waiting times of all admissions."""
    lost: LostWork = NOTHING_LOST

    @property
    def mean_wait(self) -> Span:
        return self.waited // self.admitted if self.admitted else 0


class WorkloadTotals(Struct, rename="camel"):
    """Outcome of a workload in the report. Mutable while events are added up."""

    workload: str
    queue: str = ""
    gpus: int = 0
    """Units that the workload requests: GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    state: str = "pending"
    submitted: Time | None = None
    """Time of submission; None if the selected events do not have it."""
    started: Time | None = None
    ended: Time | None = None
    evictions: int = 0


class SimulationReport(Struct, frozen=True, kw_only=True):
    """The report that `gpuconsole simulate` prints."""

    start: Time
    end: Time
    seed: int
    counts: dict[str, int]
    queues: list[QueueRow]
    workloads: list[WorkloadTotals]
    events: list[Detail]


def report(lines: Sequence[HistoryEvent], *, before: Snapshot, after: Snapshot, seed: int) -> SimulationReport:
    """Summarize the events `lines` of a simulation between two of its snapshots."""
    return SimulationReport(
        start=before.time,
        end=after.time,
        seed=seed,
        counts=dict(sorted(Counter(line.what.value for line in lines).items())),
        queues=_queues(lines),
        workloads=_workloads(lines, before, after),
        events=[_detail(line) for line in lines],
    )


def as_json(report: SimulationReport) -> dict[str, Any]:
    """The report as JSON values: times as RFC 3339, durations in seconds."""
    return {
        "version": VERSION,
        "start": format_time(report.start),
        "end": format_time(report.end),
        "seed": report.seed,
        "counts": report.counts,
        "queues": [_queue_facts(row) for row in report.queues],
        "workloads": [{**to_builtins(row), **_moments(row)} for row in report.workloads],
        "events": report.events,
    }


def _queue_facts(row: QueueRow) -> dict[str, Any]:
    """A queue as JSON values; losses are null where none of them is known."""
    lost, facts = row.lost, to_builtins(row)
    del facts["lost"]
    return {
        **facts,
        "waited": row.waited / SECOND,
        "meanWait": row.mean_wait / SECOND,
        "lostGpuHours": lost.gpu_hours if lost.unknown < max(1, lost.times) else None,
        "cost": lost.cost if lost.unpriced < max(1, lost.times) else None,
        "lossesUnknown": lost.unknown,
    }


def pools_as_text(rows: Sequence[MachinePool]) -> list[str]:
    """Format the node pools as a table; empty if there are none."""
    cells = [
        (
            *(
                row.name,
                row.autoscaler,
                row.nodes,
                f"{row.used}/{short_amount(row.gpus, row.unit)}",
                row.spot,
                row.launched,
                row.gone,
            ),
            *(row.interrupted, f"{row.hourly:.2f}", f"{row.idle_hourly:.2f}", f"{row.spent:.2f}"),
        )
        for row in rows
    ]
    heads = (
        *("POOL", "AUTOSCALER", "NODES", "GPUS", "SPOT", "LAUNCHED", "REMOVED"),
        *("INTERRUPTED", "USD/H", "IDLE USD/H", "USD"),
    )
    return [*text_table(heads, cells), ""] if cells else []


def _moments(row: WorkloadTotals) -> dict[str, str | None]:
    moments = {"submitted": row.submitted, "started": row.started, "ended": row.ended}
    return {name: None if time is None else format_time(time) for name, time in moments.items()}


QUEUES = ("QUEUE", "ADMITTED", "PREEMPTED", "EVICTED", "FINISHED", "MEAN WAIT", "LOST GPU-H", "COST $")
WORKLOADS = ("WORKLOAD", "QUEUE", "GPUS", "STATE", "SUBMITTED", "STARTED", "ENDED", "EVICTIONS")


def as_text(report: SimulationReport) -> list[str]:
    """Format the report as lines; times are relative to its start."""
    queues = [_cells(row) for row in report.queues]
    workloads = [
        (
            *(called(w.workload), w.queue, device_cell(w.gpus, w.unit), w.state),
            *(_since(report, time) for time in (w.submitted, w.started, w.ended)),
            w.evictions,
        )
        for w in report.workloads
    ]
    return [
        *text_table(
            ("QUEUE", "ADMITTED", "PREEMPTED", "EVICTED", "FINISHED", "MEAN WAIT", "LOST GPU-H", "COST $"), queues
        ),
        "",
        *text_table(("WORKLOAD", "QUEUE", "GPUS", "STATE", "SUBMITTED", "STARTED", "ENDED", "EVICTIONS"), workloads),
        "",
        f"{format_time(report.start)} to {format_time(report.end)}, seed {report.seed}: "
        + (", ".join(f"{number:,} {name}" for name, number in report.counts.items()) or "nothing happened"),
    ]


def _cells(row: QueueRow) -> tuple[Cell, ...]:
    lost, cost = row.lost.hours_text(".1f"), row.lost.cost_text(f"{row.lost.cost:.2f}")
    return row.queue, row.admitted, row.preempted, row.evicted, row.finished, format_span(row.mean_wait), lost, cost


def _since(report: SimulationReport, time: Time | None) -> str:
    if time is None:
        return "–"
    sign = "+" if time >= report.start else ""
    return sign + format_exactly(time - report.start)


def _queues(lines: Iterable[HistoryEvent]) -> list[QueueRow]:
    rows: dict[str, QueueRow] = {}
    for line in lines:
        if not line.queue:
            continue
        row = rows.setdefault(line.queue, QueueRow(line.queue))
        match line.what:
            case HistoryEventKind.ADMITTED:
                row.admitted += 1
                row.waited += line.waited
            case HistoryEventKind.PREEMPTED:
                row.preempted += 1
            case HistoryEventKind.EVICTED:
                row.evicted += 1
                row.lost += lost_by_one(line)
            case HistoryEventKind.FINISHED:
                row.finished += 1
    return sorted(rows.values(), key=lambda row: row.queue)


def _at_first(before: Snapshot, workload: Workload) -> WorkloadTotals:
    """The row of a workload at the start, before any event is added."""
    gpus, unit = amount_of(before, workload)
    began = workload.condition("Admitted")
    return WorkloadTotals(
        workload=workload.key,
        queue=workload.cluster_queue,
        gpus=gpus,
        unit=unit,
        state=phase_of(before, workload).value,
        submitted=workload.created,
        started=began.since if began is not None and began.status else None,
        evictions=workload.evictions,
    )


def _workloads(lines: Iterable[HistoryEvent], before: Snapshot, after: Snapshot) -> list[WorkloadTotals]:
    rows = {workload.key: _at_first(before, workload) for workload in before.workloads.all()}
    own = {line.workload for line in lines if line.what is HistoryEventKind.SUBMITTED}
    for line in lines:
        name = line.workload or line.pod
        # A pending pod of a job is no state of its workload; the job's own row shows it as pending.
        of_a_job = line.what is HistoryEventKind.PENDING and bool(line.pod) and name not in own
        if line.what not in _STATES or not name or of_a_job:
            continue
        row = rows.get(name)
        if row is None:
            row = rows[name] = WorkloadTotals(name)
        row.state = _STATES[line.what]
        row.queue = line.queue or row.queue
        row.gpus, row.unit = (line.gpus, line.unit) if line.gpus else (row.gpus, row.unit)
        row.evictions += line.what is HistoryEventKind.EVICTED
        if line.what is HistoryEventKind.SUBMITTED:
            row.submitted = line.time
        if line.what is HistoryEventKind.STARTED and row.started is None:
            row.started = line.time
        row.ended = (
            line.time
            if line.what in (HistoryEventKind.FINISHED, HistoryEventKind.FAILED, HistoryEventKind.DELETED)
            else None
        )
    for workload in after.workloads.all():
        if (known := rows.get(workload.key)) is not None:
            known.state = phase_of(after, workload).value
            ready = workload.condition("PodsReady")
            if known.started is None and ready is not None and ready.status:
                # The next slice of an elastic job takes over running pods: nothing starts, so there is no event.
                known.started = ready.since
    return list(rows.values())


SLICES = 200
"""Number of steps in which a simulation is advanced, each a step of the progress bar."""


class Duration(click.ParamType[Span]):
    """Type of click options whose value is a duration such as 90s, 30m or 24h."""

    name = "duration"

    def __init__(self, least: Span = 0) -> None:
        """Reject durations below `least`."""
        self._least = least

    def convert(self, value: str | Span, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        if not isinstance(value, str):
            return value
        try:
            span = parse_span(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if span < self._least:
            self.fail(f"{value} is too short; use at least {format_span(self._least)}", param, ctx)
        return span


@click.command()
@clustered
@click.option("--until", type=Duration(), default="24h", show_default=True, help="Simulated time to run.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice([what.value for what in HistoryEventKind]),
    help="Only these event types.",
)
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Save the final state as a snapshot.")
@click.option(
    "--cycles", type=click.File("rb"), help="Run scheduling cycles only, one JSON scenario per line; - is stdin."
)
def command(
    request: OpenRequest, until: Span, output: str, types: tuple[str, ...], save: Path | None, cycles: BinaryIO | None
) -> int:
    """Run a headless simulation.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin.
    """
    if cycles is not None:
        if request != OpenRequest():
            raise UsageError("--cycles reads its own scenarios; remove FILES and the cluster options")
        return _run_bare(cycles)
    request, settings = configured(request)
    opened = open_simulation(request, settings)
    simulation = opened.simulation
    before = simulation.snapshot()
    everything = [event for event in events_until(simulation, until) if isinstance(event, HistoryEvent)]
    for notice in [*opened.notices, *_refusals(everything, before.time)]:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    lines = [line for line in everything if not types or line.what.value in types]
    if save is not None:
        _save(simulation, save)
    if output == "jsonl":
        for line in lines:
            click.echo(msgspec.json.encode(record(line)))
        return 0
    summary = report(lines, before=before, after=simulation.snapshot(), seed=simulation.seed)
    rows = pools(simulation.snapshot())
    if output == "json":
        facts = {**as_json(summary), **({"pools": rows} if rows else {})}
        print_json(facts)
    else:
        for text in [*pools_as_text(rows), *as_text(summary)]:
            click.echo(text)
    return 0


def _run_bare(lines: BinaryIO) -> int:
    """Run the scheduling cycles of one scenario per line, and print a JSON result for each; 1 if one has an error."""
    failed = False
    for result in run_lines(lines, lines.name, misread_expectations):
        click.echo(json.dumps(result, separators=(",", ":")))
        failed = failed or "error" in result
    return 1 if failed else 0


def _refusals(lines: Iterable[HistoryEvent], start: Time) -> Iterator[str]:
    """Commands of the scenario that were refused, so that the results may not be as intended."""
    for line in lines:
        if line.what is HistoryEventKind.COMMAND_REFUSED:
            yield f"+{format_exactly(line.time - start)} refused {line.reason}: {line.message}"


def events_until(simulation: Simulation, until: Span) -> Iterator[Event]:
    """Run the simulation for `until` and yield its events, with a progress bar if stderr is a terminal."""
    start = simulation.now
    with click.progressbar(
        range(1, SLICES + 1), file=sys.stderr, label="simulating", hidden=not sys.stderr.isatty()
    ) as bar:
        for part in bar:
            simulation.advance(start + until * part // SLICES)
            yield from simulation.drain()


def _save(simulation: Simulation, file: Path) -> None:
    try:
        file.write_bytes(write_snapshot(simulation))
    except OSError as error:
        raise SourceError(str(file), error.strerror or str(error)) from error
