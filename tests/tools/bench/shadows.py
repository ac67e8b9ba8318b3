"""The shadow of a live Kueue: recordings, as they were and played faster, at 100 decisions a second.

The share is CPU time per second of the cluster's time, which is what the worker process needs to keep up.
"""

import time
from collections.abc import Iterable, Sequence

from gpuconsole.backends.kube.recording import ClusterRecording
from gpuconsole.insight.forecast.agreement import ShadowReport
from gpuconsole.insight.forecast.shadow import Shadow
from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.workers.protocol import FOLLOWED
from tests.support.shared_material import CONFORMANCE
from tests.tools.bench.report import Report

RATE = 100
"""Decisions of Kueue a second."""
SHARE = 0.25
"""The most of one core that a shadow may take."""
Change = tuple[Time, Applied | Deleted]


def shadows(report: Report) -> None:
    """CPU time of the shadow."""
    for file in sorted((CONFORMANCE / "live").glob("*.jsonl.gz")) if CONFORMANCE is not None else ():
        recording = ClusterRecording(file)
        config = KueueConfig(fair_sharing=recording.has_fair_sharing, wait_for_pods_ready=None)
        begin, objects = recording.begin, recording.objects()
        changes = [(one.time, one.event) for one in recording.changes() if one.event.table in FOLLOWED]
        title = f"shadow of the recording {file.name}"
        found = _measured(report, title, Shadow(config, objects, begin), changes)
        _measured(
            report, f"  at {RATE} decisions/s", Shadow(config, objects, begin), _quicker(changes, found), bar=SHARE
        )


def _quicker(changes: Sequence[Change], found: ShadowReport) -> list[Change]:
    """The same changes, in so short a time that there are `RATE` decisions a second."""
    begin = found.since
    factor = found.counts.decisions / RATE / ((found.until - begin) / SECOND)
    return [(begin + int((at - begin) * factor), event) for at, event in changes]


def _follow(shadow: Shadow, changes: Iterable[Change]) -> ShadowReport:
    for at, event in changes:
        shadow.follow(event, at)
    return shadow.report


def _measured(
    report: Report, title: str, shadow: Shadow, changes: Sequence[Change], *, bar: float | None = None
) -> ShadowReport:
    """Print the share of one core that it takes to keep up."""
    began = time.process_time()
    found = _follow(shadow, changes)
    took, lasted = time.process_time() - began, (found.until - found.since) / SECOND
    counts = found.counts
    text = (
        f"{took / lasted:>10.0%} of a core   {counts.decisions / lasted:.0f} decisions/s,"
        f" {counts} agree, {counts.unknown / max(1, counts.decisions):.1%} unknown"
    )
    report.fact(title, text + (f"  (bar {bar:.0%})" if bar else ""), right=bar is None or took / lasted <= bar)
    return found
