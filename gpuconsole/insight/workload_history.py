"""History for estimates: run times of past work, and arrivals of the last days.

Both come from a Snapshot (running work, and finished work that is not deleted yet) and from lines of history, which
include deleted work.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.insight.device_demand import wanted_units
from gpuconsole.model.clock import DAY, HOUR, Span, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload, anew
from gpuconsole.sim.run_times import ObservedRun, WorkKind

LOOK_BACK: Span = 7 * DAY
"""Length of the history of arrivals that is repeated."""
SHORTEST: Span = HOUR
"""Minimum history for repeating arrivals: in a shorter one, the initial jobs of a cluster would repeat."""
_ENDS = (HistoryEventKind.FINISHED, HistoryEventKind.FAILED)


class PastSubmission(Struct, frozen=True):
    """A past submission, as a new workload."""

    time: Time
    workload: Workload


class InterruptedRun(Struct, frozen=True):
    """A run that ended with an eviction: a lower bound of the run time."""

    start: Time
    length: Span


class WorkloadHistory(Struct, frozen=True, kw_only=True):
    """Known run times and arrivals of a cluster at a moment."""

    time: Time
    runs: tuple[ObservedRun, ...] = ()
    """In order of their starts."""
    attempts: Mapping[str, InterruptedRun] = {}
    """Unfinished work → its longest run before an eviction."""
    arrivals: tuple[PastSubmission, ...] = ()
    """In order."""
    shortest: Span = SHORTEST
    """Arrivals of a shorter history are not repeated."""
    since: Time = 0
    """Arrivals after this moment are known. An arrival at the moment itself defines it and is not part of a rate."""

    @property
    def span(self) -> Span:
        """Length of the known history."""
        return max(0, self.time - self.since)

    @property
    def repeats(self) -> bool:
        """True if the history is long enough to repeat its arrivals."""
        return bool(self.arrivals) and self.span >= self.shortest

    def lasted(self, progress: Mapping[str, Span]) -> Mapping[str, Span]:
        """Map unfinished work to a lower bound of its run time: its time so far, or its run before an eviction."""
        earlier = {key: max(one.length, progress.get(key, 0)) for key, one in self.attempts.items()}
        return {**progress, **earlier}


def workload_history(
    snapshot: Snapshot, lines: Iterable[HistoryEvent] = (), look_back: Span = LOOK_BACK
) -> WorkloadHistory:
    """Collect the history from a Snapshot and from history lines, which add run times of deleted work."""
    lines = list(lines)
    runs, attempts = _gone(snapshot, lines), _attempts(lines or snapshot.recent)
    arrivals: list[PastSubmission] = []
    for workload in snapshot.workloads.all():
        if workload.parent:
            continue
        kind = _kind(snapshot, workload)
        job = snapshot.jobs.get(workload.owner)
        start, end = _ran(workload, job)
        done = 0 if job is None else job.done
        earlier = attempts.get(workload.key)
        if start is not None and end is not None:
            runs.append((start, ObservedRun(kind, end - start + done)))
        elif start is not None:
            lasted = max(snapshot.time - start + done, earlier.length if earlier is not None else 0)
            runs.append((start, ObservedRun(kind, lasted, ended=False)))
        elif earlier is not None and not workload.finished:
            runs.append((earlier.start, ObservedRun(kind, earlier.length, ended=False)))
        recent = snapshot.time - look_back <= workload.created <= snapshot.time
        if recent and not _comes_by_itself(snapshot, job):
            arrivals.append(PastSubmission(workload.created, anew(workload)))
    runs.sort(key=lambda one: one[0])
    arrivals.sort(key=lambda one: (one.time, one.workload.key))
    since = max(_known_since(snapshot), snapshot.time - look_back)
    return WorkloadHistory(
        time=snapshot.time,
        runs=tuple(run for _, run in runs),
        attempts=attempts,
        arrivals=tuple(one for one in arrivals if one.time > since),
        since=since,
    )


def _comes_by_itself(snapshot: Snapshot, job: Job | None) -> bool:
    """True for jobs of an existing CronJob: the simulation creates more of them, so they must not be repeated."""
    maker = snapshot.jobs.get(job.owner) if job is not None else None
    return maker is not None and isinstance(maker.rules, CronRules)


def _known_since(snapshot: Snapshot) -> Time:
    """Return the start of the period of which all arrivals are known.

    Finished work is deleted after some time: work that finished before the oldest finished work that still exists may
    be deleted, so that its arrival is unknown. All later arrivals still exist: they are pending, running, or finished
    since.
    """
    first = min((workload.created for workload in snapshot.workloads.all()), default=snapshot.time)
    ends = (workload.condition("Finished") for workload in snapshot.workloads.all() if workload.finished)
    return max(first, min((end.since for end in ends if end is not None), default=first))


def _kind(snapshot: Snapshot, workload: Workload) -> WorkKind:
    local_queue = snapshot.local_queues.get(workload.local_queue)
    return WorkKind(
        workload.namespace,
        local_queue.cluster_queue if local_queue is not None else "",
        sum(wanted_units(snapshot, workload).values()),
    )


def began(snapshot: Snapshot, workload: Workload) -> Time | None:
    """Return the start of the last run, from conditions; None if the workload has not run, or was evicted since."""
    return _ran(workload, snapshot.jobs.get(workload.owner))[0]


def _ran(workload: Workload, job: Job | None) -> tuple[Time | None, Time | None]:
    """Return start and end of the last run, from conditions."""
    admitted, finished = workload.condition("Admitted"), workload.condition("Finished")
    ready = workload.condition("PodsReady")
    if admitted is None or not admitted.status:
        return None, None
    start = admitted.since
    if ready is not None and ready.status:
        start = max(start, ready.since)
    elif job is not None and job.started:
        start = max(start, job.started)
    end = finished.since if finished is not None and finished.status else None
    return (start, end) if end is None or end >= start else (None, None)


def _attempts(lines: Iterable[HistoryEvent]) -> dict[str, InterruptedRun]:
    """Return the longest run of each workload that was evicted and has not ended since, from history."""
    started: dict[str, Time] = {}
    found: dict[str, InterruptedRun] = {}
    for line in lines:
        match line.what:
            case HistoryEventKind.STARTED:
                started[line.workload] = line.time
            case HistoryEventKind.EVICTED if line.workload in started:
                start = started.pop(line.workload)
                last = InterruptedRun(start, line.time - start)
                found[line.workload] = max(found.get(line.workload, last), last, key=lambda one: one.length)
            case (
                HistoryEventKind.FINISHED
                | HistoryEventKind.FAILED
                | HistoryEventKind.DELETED
                | HistoryEventKind.SUBMITTED
            ):
                started.pop(line.workload, None)
                found.pop(line.workload, None)
            case _:
                pass
    return found


def _gone(snapshot: Snapshot, lines: Iterable[HistoryEvent]) -> list[tuple[Time, ObservedRun]]:
    """Return the run times of deleted workloads, from the start of their pods to the end."""
    started: dict[str, HistoryEvent] = {}
    found = []
    for line in lines:
        if line.workload in snapshot.workloads:
            continue
        if line.what is HistoryEventKind.STARTED:
            started[line.workload] = line
        elif line.what is HistoryEventKind.EVICTED:
            started.pop(line.workload, None)
        elif line.what in _ENDS and (start := started.pop(line.workload, None)) is not None:
            kind = WorkKind(line.workload.partition("/")[0], line.queue or start.queue, line.gpus or start.gpus)
            found.append((start.time, ObservedRun(kind, line.time - start.time)))
    return found
