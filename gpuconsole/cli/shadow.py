"""`gpuconsole shadow`: checks each decision of a real Kueue against the engine, from a recording or a live cluster."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from gpuconsole.backends.kube.recording import ClusterRecording
from gpuconsole.backends.kube.recording_writer import RecordingWriter
from gpuconsole.cli.answering import Origin, printing, provenance
from gpuconsole.cli.options import OpenRequest, clustered, configured, print_json
from gpuconsole.cli.policy import with_kueue
from gpuconsole.cli.simulate import Duration
from gpuconsole.config import Config
from gpuconsole.errors import UsageError
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.forecast.agreement import DisagreementCause, ShadowDisagreement, ShadowReport, StateOrigin
from gpuconsole.insight.forecast.shadow import Shadow
from gpuconsole.model.clock import SECOND, Span, format_span, format_time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store.private import OWNER_ONLY_FILE
from gpuconsole.ui.answers.cluster_reports import lines_of
from gpuconsole.ui.answers.shadow import shadow_parts

VERSION = 1
"""Version of the JSON document."""
_SAVE = (
    "Also write a redacted recording to FILE for a bug report. Most names become pseudonyms; UIDs, times, sizes and"
    " names of 1 or 2 characters stay. FILE must not exist."
)


class _Shadowed(Struct, frozen=True, kw_only=True):
    """The result for one cluster, with where it is from."""

    report: ShadowReport
    origin: Origin
    missing: tuple[str, ...] = ()
    """Objects that decisions depend on and that are not visible, as sentences."""
    lost: str = ""
    """Why the cluster was unreachable at the end; empty if it was not."""


@click.command()
@clustered
@click.option("--for", "lasting", type=Duration(), default="1m", show_default=True, help="How long to watch (--live).")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=_SAVE)
@printing
def command(request: OpenRequest, lasting: Span, save: Path | None, output: str) -> int:
    """Check each decision of a real Kueue against the engine. Nothing is written to the cluster.

    FILES is a recording of a cluster; with --live, the cluster is watched. Exit status: 1 = Kueue and the engine
    disagree in a decision; 2 = also if the live cluster was unreachable at the end.
    """
    request, settings = configured(request)
    with _writer(save) as writer:
        found = _live(request, settings, lasting, writer) if request.live else _recorded(request, writer)
    if output == "json":
        print_json(_document(found))
    else:
        for line in _lines(found):
            click.echo(clean(line))
        click.echo(clean(f"gpuconsole: {provenance(found.origin)}"), err=True)
    if found.lost:
        return 2
    return int(found.report.counts.disagreed > 0)


@contextmanager
def _writer(path: Path | None) -> Iterator[RecordingWriter | None]:
    """Create the file of a recording, and say where it is in the end. An empty file is removed. Raises UsageError."""
    if path is None:
        yield None
        return
    if path.suffix == ".gz":
        raise UsageError(f"{path}: recordings are saved without compression; name a file such as {path.stem}")
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY_FILE)
    except OSError as error:
        raise UsageError(f"--save {path}: {error.strerror}; name a new file in a folder that exists") from error
    try:
        with open(descriptor, "wb", buffering=0) as file:
            writer = RecordingWriter(file)
            yield writer
    finally:
        size = path.stat().st_size
        if not size:
            path.unlink()
    if writer.problem:
        click.echo(clean(f"gpuconsole: {path}: {writer.problem}"), err=True)
    click.echo(
        clean(f"gpuconsole: {path}: {writer.changes:,} changes, {size / 1e6:,.1f} MB; names are replaced"), err=True
    )


def _recorded(request: OpenRequest, writer: RecordingWriter | None) -> _Shadowed:
    """Check the decisions of a recording."""
    if len(request.files) != 1:
        raise UsageError("shadow needs one recording (FILE.jsonl or FILE.jsonl.gz), or --live")
    path = Path(request.files[0])
    recording = ClusterRecording(path, writer.take if writer is not None else None)
    config, assumed = _configuration(recording, request)
    shadow = Shadow(config, recording.objects(), recording.begin)
    if writer is not None:
        writer.begin(recording.begin, config)
    for change in recording.changes():
        shadow.follow(change.event, change.time)
    report = shadow.report
    if recording.lost:
        assumed = (*assumed, f"the watch of {recording.lost} ended early; later changes are left out")
    origin = Origin(source=path.name, mode="recorded", now=report.until, assumed=assumed)
    return _Shadowed(report=report, origin=origin)


def _configuration(recording: ClusterRecording, request: OpenRequest) -> tuple[KueueConfig, tuple[str, ...]]:
    """Return the configuration of the recorded Kueue, and what is assumed about it."""
    fair = recording.has_fair_sharing
    inferred = recording.kueue or KueueConfig(fair_sharing=fair, wait_for_pods_ready=None)
    config = with_kueue(SimPolicy(kueue=inferred), request).kueue
    assert config is not None, "the inferred policy has a Kueue"
    if request.kueue_config is not None or recording.kueue is not None:
        return config, ()
    found = "fair sharing is on, as ClusterQueues report weighted shares" if fair else "fair sharing is off"
    return config, (f"Kueue's Configuration is not recorded: {found}, and waitForPodsReady is off (--kueue-config)",)


def _live(request: OpenRequest, settings: Config, lasting: Span, writer: RecordingWriter | None) -> _Shadowed:
    """Check the decisions of a live cluster while it is watched. Raises ClusterError."""
    from gpuconsole.cli.live import connected, look, polled

    with connected(request, settings, writer.attach if writer is not None else None) as opened:
        backend = opened.backend
        first = look(backend)
        missing = missing_for_admission(first)
        kueue = backend.policy.kueue
        if kueue is None:
            raise UsageError("Kueue is not installed in this cluster, so there are no decisions to check")
        if writer is not None:
            writer.begin(first.time, kueue)
        shadow = Shadow(kueue, first.objects(), first.time)
        click.echo(f"gpuconsole: cluster loaded; watching for {format_span(lasting)}", err=True)
        end = time.monotonic() + lasting / SECOND
        for event in chain.from_iterable(polled(backend, end)):
            if isinstance(event, Applied | Deleted):
                shadow.follow(event, event.time)
        report = shadow.report
        assumed = (*backend.assumed, *first.seen.warnings)
        origin = Origin(source=opened.about.source, mode="live", now=report.until, assumed=assumed)
        return _Shadowed(report=report, origin=origin, missing=missing, lost=backend.health.lost)


def _document(found: _Shadowed) -> dict[str, Any]:
    report, counts, origin = found.report, found.report.counts, found.origin
    return {
        "kind": "Shadow",
        "version": VERSION,
        "source": origin.source,
        "mode": origin.mode,
        "since": format_time(report.since),
        "until": format_time(report.until),
        "known_since": format_time(report.known_since) if report.known_since is not None else None,
        "assumed": origin.assumed,
        "not_visible": found.missing,
        "decisions": counts.decisions,
        "agreed": counts.agreed,
        "unknown": counts.unknown,
        "agreement": round(counts.agreement, 4),
        "kinds": {
            kind.value: {"decisions": one.decisions, "agreed": one.agreed, "unknown": one.unknown}
            for kind, one in sorted(report.kinds.items())
        },
        "states": {state.value: report.states.get(state, 0) for state in StateOrigin},
        "causes": {cause.value: report.causes.get(cause, 0) for cause in DisagreementCause},
        "disagreements": [_disagreement(one) for one in report.disagreements],
    }


def _disagreement(one: ShadowDisagreement) -> dict[str, Any]:
    return {
        "time": format_time(one.time),
        "workload": one.workload,
        "queue": one.queue,
        "kind": one.kind.value,
        "expected": one.expected,
        "actual": one.actual,
        "cause": one.cause.value,
    }


def _lines(found: _Shadowed) -> Iterator[str]:
    yield from lines_of(shadow_parts(found.report))
    for sentence in (*found.origin.assumed, *found.missing):
        yield ""
        yield sentence
