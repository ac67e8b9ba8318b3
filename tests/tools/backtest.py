"""Back-test the start times that are foretold, on a trace of a real cluster (`make backtest`).

The jobs of the Philly trace (submission, GPUs, run time, virtual cluster) go through a cluster with a ClusterQueue for
each virtual cluster, whose quotas are in proportion to its nodes there, all in one cohort, lending to each other
without reclaim; GPUs are one pool, as many as the jobs would use at 80 % of all times if nobody ever waited. The walk
begins at day 45; now and then the start of whatever waits, and was not foretold before, is foretold from what is known
at that moment: how long anything that runs or waits will take, and what comes later, is not. What is said, corrected
and remembered is what the console says, corrects and remembers (insight/estimates.py). What waits from day 50 on is
judged, the days before only fill the cluster and the memory; days before 50 served for development:

- coverage: how many starts lie in the 80 % interval, to be 75 to 85 %;
- interval score (Winkler): width, and ten times what a start lies outside; its mean, beside that of the 10 and 90 %
  quantiles of the waits of the same queue's earlier jobs that had to wait, to be at most 0.8 times that.

Nothing is fitted to the judged days: an interval moves by how earlier ones missed, as far as that was known when it was
given. GPUCONSOLE_TRACES names another folder of the same form; `--every 24h` looks less often.
"""

import multiprocessing
import os
import sys
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from msgspec.structs import replace

from gpuconsole.insight.forecast.estimates import (
    KEPT,
    RUNS,
    Estimate,
    Interval,
    PastEstimate,
    calibrate,
    corrected,
    estimate,
)
from gpuconsole.insight.forecast.eta import HORIZON, starts, workload_history
from gpuconsole.model.clock import DAY, HOUR, SECOND, Span, Time, parse_span
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.commands import Submit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.shared_material import TRACES
from tests.tools.traces import rows

BEGINS, JUDGED_FROM = 45, 50
"""Days of the trace."""
EVERY = "10h"
PROCESSES = 2
BUSY = 0.8
"""The cluster has what the jobs would use at this part of all times."""
FINISHED_KEPT: Span = 14 * DAY
COVERED, RATIO = (0.75, 0.85), 0.8
OUTSIDE = 10.0
"""What the score adds for each hour outside an 80 % interval."""
NODE = 8


class TraceJob(NamedTuple):
    """A job of the trace."""

    name: str
    queue: str
    submitted: Time
    gpus: int
    lasts: Span


class Asked(NamedTuple):
    """What was foretold of a job's start, and what the queue's own past says."""

    job: TraceJob
    foretold: Estimate
    usual: Interval


class Judged(NamedTuple):
    """A start and what had been said of it: corrected, as it came, and by the queue's own past."""

    intervals: tuple[Interval, Interval, Interval]
    actual: Time
    error: Span
    """Of the median."""
    waited: Span
    """From when it was asked for."""


def read(folder: Path, since: int = 0) -> tuple[list[TraceJob], dict[str, int]]:
    """The jobs from a day on, in order, and each virtual cluster's nodes. Raises SourceError."""
    jobs = [
        TraceJob(
            row["job_id"],
            row["vc"],
            int(row["submit_s"]) * SECOND,
            int(row["num_gpu"]),
            int(row["duration_s"]) * SECOND,
        )
        for _, row in rows(folder / "philly_vc_jobs.csv.gz", ("job_id", "vc", "submit_s", "num_gpu", "duration_s"))
    ]
    nodes = {row["vc"]: int(row["node num"]) for _, row in rows(folder / "philly_vc_nodes.csv", ("vc", "node num"))}
    kept = (job for job in jobs if job.submitted >= since * DAY)
    return sorted(kept, key=lambda job: (job.submitted, job.name)), nodes


def gpus_for(jobs: Sequence[TraceJob]) -> int:
    """GPUs that are enough at 80 % of all times, were there no end of them."""
    steps = sorted(
        [(job.submitted, job.gpus) for job in jobs] + [(job.submitted + job.lasts, -job.gpus) for job in jobs]
    )
    used, since, spans = 0, 0, list[tuple[int, Span]]()
    for moment, change in steps:
        spans.append((used, moment - since))
        used, since = used + change, moment
    left = BUSY * sum(span for _, span in spans)
    for amount, span in sorted(spans):
        left -= span
        if left <= 0:
            return max(amount, max(job.gpus for job in jobs))
    return max(job.gpus for job in jobs)


def cluster(jobs: Sequence[TraceJob], nodes: Mapping[str, int]) -> list[Object]:
    """Queues with their parts of the pool; a virtual cluster without nodes of its own only borrows."""
    total = gpus_for(jobs)
    names = sorted({job.queue for job in jobs})
    owned = sum(nodes.get(name, 0) for name in names)
    quotas = {name: round(total * nodes.get(name, 0) / owned) if owned else total // len(names) for name in names}
    pool = sum(quotas.values())
    room = {GPU: pool, "pods": 2 * pool}
    things: list[Object] = [ResourceFlavor(name="gpu"), Node(name="pool", uid="pool", capacity=room, allocatable=room)]
    for name in names:
        group = ResourceGroup((GPU,), (FlavorQuotas("gpu", {GPU: Quota(quotas[name])}),))
        things += [
            Namespace(name=name),
            ClusterQueue(
                name=name,
                cohort="philly",
                namespace_selector=LabelSelector(),
                resource_groups=(group,),
                preemption=ClusterQueuePreemption(PreemptionPolicy.NEVER, PreemptionPolicy.NEVER),
            ),
            LocalQueue(namespace=name, name="main", cluster_queue=name),
        ]
    return things


def workload(job: TraceJob) -> Workload:
    template = PodTemplate(containers=(Container(requests={GPU: job.gpus}),), restart_policy="Never")
    notes = {"gpuconsole.io/duration": f"{job.lasts // SECOND}s"}
    return Workload(
        namespace=job.queue, name=job.name, queue="main", annotations=notes, pod_sets=(PodSet(template=template),)
    )


class Walk:
    """The trace from beginning to end. Mutates."""

    def __init__(self, jobs: Sequence[TraceJob], nodes: Mapping[str, int], runs: int) -> None:
        policy = SimPolicy(keep_finished=FINISHED_KEPT)
        begin = jobs[0].submitted
        self.simulation = Simulation.from_objects(cluster(jobs, nodes), policy=policy, seed=1, start=begin)
        self.jobs, self.runs = jobs, runs
        self.started: dict[str, Time] = {}
        self.waits: dict[str, list[tuple[Time, Span]]] = {}
        """Of those that had to wait, by queue, with their starts in order."""
        self._submitted = {f"{job.queue}/{job.name}": job for job in jobs}
        self._waiting: dict[str, TraceJob] = {}
        """What was submitted since it was asked last, and has not started."""

    def asked(self, every: Span) -> Iterator[list[Asked]]:
        """Go on from moment to moment; what is computed beside comes in order."""
        going: deque[tuple[list[tuple[TraceJob, Interval]], Connection, multiprocessing.process.BaseProcess]] = deque()
        moment = self.simulation.now + every
        for job in self.jobs:
            while moment < job.submitted:
                self._advance(moment)
                if self._waiting:
                    if len(going) == PROCESSES:
                        yield _come(*going.popleft())
                    going.append(self._ask())
                moment += every
            self._advance(job.submitted)
            self.simulation.submit(Submit((workload(job),)))
            self._waiting[f"{job.queue}/{job.name}"] = job
        while going:
            yield _come(*going.popleft())
        self._advance(self.simulation.now + 10 * DAY)

    def _advance(self, until: Time) -> None:
        self.simulation.advance(until)
        self._note()

    def _note(self) -> None:
        for event in self.simulation.drain():
            if (
                isinstance(event, HistoryEvent)
                and event.what is HistoryEventKind.STARTED
                and event.workload not in self.started
            ):
                self.started[event.workload] = event.time
                self._waiting.pop(event.workload, None)
                job = self._submitted[event.workload]
                if event.time > job.submitted:
                    self.waits.setdefault(job.queue, []).append((event.time, event.time - job.submitted))

    def _usual(self, queue: str) -> Interval:
        """What the queue's own past says: the 10 and 90 % quantiles of its waits; all queues' where it has too few."""
        waits = [wait for _, wait in self.waits.get(queue, ())]
        if len(waits) < 10:
            waits = [wait for told in self.waits.values() for _, wait in told]
        ranked = sorted(waits) or [0]
        now = self.simulation.now
        low, high = (ranked[min(len(ranked) - 1, int(part * len(ranked)))] for part in (0.1, 0.9))
        return Interval(now + low, now + high)

    def _ask(self) -> tuple[list[tuple[TraceJob, Interval]], Connection, multiprocessing.process.BaseProcess]:
        """Foretell all that waits in a process of its own, which has this one's memory."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self._foretell, args=(dict(self._waiting), theirs))
        process.start()
        theirs.close()
        subjects = [(job, self._usual(job.queue)) for job in self._waiting.values()]
        self._waiting = {}
        return subjects, ours, process

    def _foretell(self, subjects: Mapping[str, TraceJob], pipe: Connection) -> None:
        known = workload_history(self.simulation.snapshot())
        found = starts(self.simulation, subjects, known, runs=self.runs, seed=1, horizon=HORIZON)
        pipe.send([estimate(found[key]) for key in subjects])


def _come(
    subjects: list[tuple[TraceJob, Interval]], pipe: Connection, process: multiprocessing.process.BaseProcess
) -> list[Asked]:
    foretold = pipe.recv()
    process.join()
    return [Asked(job, one, usual) for (job, usual), one in zip(subjects, foretold, strict=True)]


def score(interval: Interval, actual: Time) -> float:
    """The interval score in hours: width, and ten times what lies outside."""
    outside = max(0, interval.first - actual, actual - interval.last)
    return (interval.last - interval.first + OUTSIDE * outside) / HOUR


def judge(moments: Sequence[Sequence[Asked]], started: Mapping[str, Time]) -> list[Judged]:
    """What came of what was said from day JUDGED_FROM on, corrected by what was known of all before."""
    earlier: list[PastEstimate] = []
    judged: list[Judged] = []
    for moment in moments:
        learned = calibrate(earlier[-KEPT:], moment[0].foretold.asked)
        for one in moment:
            actual = started.get(one.foretold.workload)
            if one.foretold.asked >= JUDGED_FROM * DAY and actual is not None:
                said = corrected(one.foretold, learned)
                intervals = (said.interval, said.raw, one.usual)
                judged.append(Judged(intervals, actual, abs(said.median - actual), actual - said.asked))
        earlier += (
            replace(one.foretold.as_past_estimate, started=started.get(one.foretold.workload)) for one in moment
        )
    return judged


def report(judged: Sequence[Judged]) -> tuple[list[str], bool]:
    """The numbers, and whether they are good enough."""
    if not judged:
        return ["nothing had to wait on the judged days: the trace does not say anything"], False
    covered = [fmean(one.intervals[n].first <= one.actual <= one.intervals[n].last for one in judged) for n in range(3)]
    scores = [fmean(score(one.intervals[n], one.actual) for one in judged) for n in range(3)]
    widths = [median((one.intervals[n].last - one.intervals[n].first) / HOUR for one in judged) for n in range(3)]
    error, wait = median(one.error / HOUR for one in judged), median(one.waited / HOUR for one in judged)
    good = COVERED[0] <= covered[0] <= COVERED[1] and scores[0] <= RATIO * scores[2]
    names = ("foretold, corrected", "foretold, as it came", "the queue's own past")
    lines = [f"{'INTERVAL':22} {'COVERED':>8} {'SCORE':>9} {'MEDIAN WIDTH':>13}"]
    for name, part, mean, width in zip(names, covered, scores, widths, strict=True):
        lines.append(f"{name:22} {part:8.1%} {mean:7.2f} h {width:11.2f} h")
    return [
        *lines,
        f"{len(judged)} starts judged; median wait from then on {wait:.2f} h, median error {error:.2f} h",
        f"coverage {covered[0]:.1%} (75 to 85 %), "
        f"score {scores[0] / scores[2]:.2f} of that of the queue's own past (at most {RATIO})",
    ], good


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=parse_span, default=parse_span(EVERY), help="Look so often.")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    if TRACES is None or not (TRACES / "philly").is_dir():
        print("SKIPPED: no traces beside the project (GPUCONSOLE_TRACES names a folder): nothing was back-tested")
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    jobs, nodes = read(TRACES / "philly", BEGINS)
    walk = Walk(jobs, nodes, given.runs)
    moments = list(walk.asked(given.every))
    lines, good = report(judge(moments, walk.started))
    print(f"{len(moments)} moments, {given.runs} runs each")
    for text in lines:
        print(text)
    used = sum(os.times()[:4])
    print(f"{time.monotonic() - began:.0f} s, {used:.0f} s of CPU, load {load:.1f} to {os.getloadavg()[0]:.1f}")
    print("met" if good else "NOT MET")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
