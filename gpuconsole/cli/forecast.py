"""`gpuconsole forecast`: forecasts Kueue's next decisions; with --check, compares forecasts with Kueue's decisions.

A check forecasts each observation of the cluster and compares the next observation with it. The observations come from
a live cluster, a simulation, or saved Snapshots; with --history, the comparison is that of recorded live sessions.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from msgspec.structs import replace

from gpuconsole.cli.answering import (
    UNKNOWN,
    CommandAnswer,
    Origin,
    agreement_body,
    agreement_lines,
    mode_of,
    nothing_said,
    printing,
    recorded_agreement,
    say,
)
from gpuconsole.cli.options import OpenRequest, clustered, configured
from gpuconsole.cli.policy import with_kueue
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import open_simulation, saved_in, with_overrides
from gpuconsole.config import Config
from gpuconsole.errors import UsageError
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.forecast.backtest import (
    DifferenceCause,
    ForecastChecker,
    ForecastDifference,
    ForecastDifferences,
)
from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction, WorkloadForecast, forecast, in_words
from gpuconsole.insight.tables import counted, seconds, text_table
from gpuconsole.model.clock import SECOND, Span, format_span, format_time
from gpuconsole.model.devices import device_cell
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui.names import called, named

CAUSES = {
    DifferenceCause.TIMING: "the cluster changed before the decision; on the changed cluster the engine agrees",
    DifferenceCause.ORDER: "Kueue chose another workload of the same priority and timestamp",
    DifferenceCause.UNSEEN: "objects that decide it are not visible (RBAC)",
    DifferenceCause.RACE: "an object changed close to the decision, between two observations",
    DifferenceCause.MEMORY: "the engine agrees if it assumes another state of Kueue's queues",
    DifferenceCause.DISAGREEMENT: "the engine decides differently from Kueue",
}
"""Cause of a difference → its explanation in the text output."""
FATES = {
    ForecastAction.ADMITTED: "would be admitted",
    ForecastAction.AFTER_VICTIMS: "would preempt others",
    ForecastAction.PREEMPTED: "would be preempted",
    ForecastAction.WAITS: "would stay pending",
}
"""Forecast action → its words in the summary line."""


def as_text(forecast: Forecast | None, said: ForecastDifferences | None) -> list[str]:
    """Format the comparison of forecast and decisions as lines; without a comparison, the forecast itself."""
    if said is not None:
        return _check_as_text(said, forecast)
    return _forecast_as_text(forecast) if forecast is not None else []


def _forecast_as_text(forecast: Forecast) -> list[str]:
    """The forecast as text, admissions first."""
    order = forecast.in_order()
    counts = [f"{sum(one.fate is action for one in order)} {words}" for action, words in FATES.items()]
    lines = [f"At {seconds(forecast.time)}: {', '.join(counts)}; simulated, nothing is reserved", ""]
    lines += text_table(
        ("WORKLOAD", "QUEUE", "GPUS", "PRIORITY", "FORECAST"),
        [
            (called(one.workload), one.queue, device_cell(one.gpus, one.unit), one.priority, named(in_words(one)))
            for one in order
        ],
    )
    return [*lines, *_assumed(forecast)]


def _check_as_text(said: ForecastDifferences, forecast: Forecast | None) -> list[str]:
    """Number of agreements, differences by cause, and each difference."""
    lines = [
        _agreement(said),
        *text_table(
            ("COUNT", "CAUSE", "MEANS"),
            [
                (said.agreed, "agreed", "Kueue decided as forecast, or as the engine decides for new objects"),
                *((said.of(cause), cause.value, means) for cause, means in CAUSES.items()),
            ],
        ),
    ]
    differing = [one for one in said.differences if one.cause is not DifferenceCause.TIMING]
    if before := sum(said.earlier.values()):
        total = len(said.differences) + before
        listed = f"The newest {len(said.differences):,} of {total:,} differences, except timing:"
        lines += ["", listed]
    for one in differing:
        lines += ["", *_difference(one)]
    return [*lines, *(_assumed(forecast) if forecast is not None else ())]


def _agreement(said: ForecastDifferences) -> str:
    if not said.decisions:
        return "no Kueue decisions to compare"
    return f"{counted(said.decisions, 'Kueue decision')} compared, {said.agreement:.1%} agreement"


def as_json(forecast: Forecast | None, said: ForecastDifferences | None) -> dict[str, Any]:
    """Return the forecast and the comparison as fields of the JSON document, without those that are None."""
    document: dict[str, Any] = {}
    if forecast is not None:
        document["forecast"] = [_prospect(one) for one in forecast.in_order()]
    if said is not None:
        document["agreement"] = {
            "decisions": said.decisions,
            "agreed": said.agreed,
            **{cause.value: said.of(cause) for cause in DifferenceCause},
            "part": round(said.agreement, 4),
        }
        document["differences"] = list(map(_as_document, said.differences))
    return document


def _as_document(one: ForecastDifference) -> dict[str, Any]:
    document = {**msgspec.to_builtins(one), "time": format_time(one.time), "object": one.object or None}
    del document["span"]
    return {**document, "span_seconds": one.span / SECOND if one.object else None}


def _prospect(one: WorkloadForecast) -> dict[str, Any]:
    return {**msgspec.structs.asdict(one), "created": format_time(one.created), "text": in_words(one)}


def _difference(one: ForecastDifference) -> Iterator[str]:
    yield f"{seconds(one.time)}  {called(one.workload)}  {one.cause.value}{f': {one.detail}' if one.detail else ''}"
    yield f"  forecast: {named(one.forecast)}"
    yield f"  Kueue:    {named(one.fact)}"


def _assumed(forecast: Forecast) -> list[str]:
    assumed = (*forecast.assumed, *forecast.queues)
    return ["", *assumed] if assumed else []


VERSION = 3
"""Version of the answer in the JSON document."""
KEPT = 200
"""Maximum number of recorded differences that `--history` lists."""


class ClusterView(NamedTuple):
    """One observation of a cluster: its Snapshot, the scheduler settings to forecast with, and its source."""

    snapshot: Snapshot
    policy: SimPolicy
    source: str
    lost: str = ""
    """Why the cluster became unreachable after this observation; empty if it did not."""


class Moments(NamedTuple):
    """When the cluster is observed: in simulated time or, for a live cluster, in wall-clock time."""

    until: Span
    """Simulated time before the first observation."""
    lasting: Span
    """Time from the first observation to the last; 0 for a single one."""
    every: Span
    """Time from one observation to the next."""


@click.command()
@clustered
@click.option("--until", type=Duration(), default="0s", show_default=True, help="Simulate this long first.")
@click.option("--check", is_flag=True, help="Compare forecasts with Kueue's decisions.")
@click.option("--for", "lasting", type=Duration(), default="1m", show_default=True, help="Duration of the check.")
@click.option("--every", type=Duration(), default="2s", show_default=True, help="Polling interval of the check.")
@click.option(
    "--against",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --check: later Snapshot to compare with --snapshot (repeatable).",
)
@click.option("--history", is_flag=True, help="With --check: use the decisions recorded by live sessions.")
@printing
def command(
    request: OpenRequest,
    until: Span,
    check: bool,
    lasting: Span,
    every: Span,
    against: tuple[Path, ...],
    history: bool,
    output: str,
) -> int:
    """Forecast what Kueue's next cycles do to pending workloads. Nothing is written to the cluster.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture. With --check, the decisions of a live or
    simulated cluster, or of the Snapshots of --snapshot and --against, are compared with the forecast. Exit status: 1 =
    with --check, Kueue and the forecast disagree; 2 = also if the live cluster was unreachable at the end of the check.
    """
    _refuse_nonsense(check, against, history, request, until)
    request, settings = configured(request)
    if history:
        origin = Origin(source=str(settings.newest_history_file), mode="recorded", now=None)
        return say(origin, _answer(None, _recorded(settings)), output)
    if not check:
        with _sights(request, settings, against, Moments(until, 0, every)) as sights:
            sight = next(sights)
        if lacking := missing_for_admission(sight.snapshot):
            return say(_origin(request, sight, until), nothing_said("Forecast", lacking), output)
        predicted = forecast(sight.snapshot, sight.policy, assumed=sight.snapshot.seen.warnings)
        origin, answer = _origin(request, sight, until), _answer(predicted, None)
        if origin.mode == "live":
            counts = recorded_agreement(settings, sight.source, sight.snapshot.time)
            body, lines = answer.body | agreement_body(counts), (*answer.lines, *agreement_lines(counts))
            answer = replace(answer, body=body, lines=lines)
        return say(origin, answer, output)
    sight, predicted, said = _checked(request, settings, against, Moments(until, lasting, every))
    answer = replace(_answer(predicted, said), unknown=missing_for_admission(sight.snapshot))
    if sight.lost:
        since = f"Kueue's decisions since {format_time(sight.snapshot.time)}: {sight.lost}"
        answer = replace(answer, status=UNKNOWN, unknown=(*answer.unknown, since))
    return say(_origin(request, sight, until), answer, output)


def _origin(request: OpenRequest, sight: ClusterView, until: Span) -> Origin:
    snapshot, mode = sight.snapshot, "simulated" if until else mode_of(request)
    return Origin(source=sight.source, mode=mode, now=snapshot.time, assumed=snapshot.seen.warnings)


def _answer(predicted: Forecast | None, said: ForecastDifferences | None) -> CommandAnswer:
    return CommandAnswer(
        kind="Forecast",
        body=as_json(predicted, said),
        lines=as_text(predicted, said),
        version=VERSION,
        status=int(said is not None and said.of(DifferenceCause.DISAGREEMENT) > 0),
        assumed=predicted.queues if predicted is not None else (),
    )


def _refuse_nonsense(check: bool, against: tuple[Path, ...], history: bool, request: OpenRequest, until: Span) -> None:
    if (against or history) and not check:
        raise UsageError("--against and --history need --check")
    if against and request.snapshot is None:
        raise UsageError("--against needs --snapshot FILE: the Snapshot to compare with")
    if against and until:
        raise UsageError("--against compares saved Snapshots and --until runs a simulation: use only one of them")
    if history and (until or request != OpenRequest()):
        raise UsageError("--history reads recorded decisions: leave out FILES and the options that name a cluster")


def _checked(
    request: OpenRequest, settings: Config, against: tuple[Path, ...], moments: Moments
) -> tuple[ClusterView, Forecast, ForecastDifferences]:
    """The last observation, its forecast, and all differences between earlier forecasts and Kueue's decisions."""
    observer, said, predicted = ForecastChecker(), ForecastDifferences(), Forecast()
    sight = ClusterView(EMPTY, SimPolicy(), "")
    with _sights(request, settings, against, moments) as sights:
        for sight in sights:
            seen = sight.snapshot.seen
            predicted, new = observer.look(sight.snapshot, sight.policy, seen.warnings, seen.decisive_gaps)
            said += new
    return sight, predicted, said


@contextmanager
def _sights(
    request: OpenRequest, settings: Config, against: tuple[Path, ...], moments: Moments
) -> Iterator[Iterator[ClusterView]]:
    """Observations of the requested cluster, in order."""
    if request.live and not moments.until:
        from gpuconsole.cli.live import connected

        with connected(request, settings) as opened:
            yield _seen(opened.backend, opened.about.source, moments)
    elif against or (request.snapshot is not None and not (moments.until or moments.lasting)):
        yield _saved(request, against)
    else:
        yield _simulated(request, moments)


def _simulated(request: OpenRequest, moments: Moments) -> Iterator[ClusterView]:
    opened = open_simulation(request)
    simulation, source = opened.simulation, opened.about.source
    # Before the first cycle nothing is decided: the first observation has to be forecast completely.
    if moments.until:
        simulation.advance(simulation.now + moments.until)
    end = simulation.now + moments.lasting
    yield ClusterView(simulation.snapshot(), simulation.policy, source)
    while simulation.now < end:
        simulation.advance(min(end, simulation.now + moments.every))
        yield ClusterView(simulation.snapshot(), simulation.policy, source)


def _saved(request: OpenRequest, against: tuple[Path, ...]) -> Iterator[ClusterView]:
    for file in (request.snapshot, *against):
        assert file is not None, "--against needs --snapshot"
        saved, policy = saved_in(file)
        snapshot = ClusterState.from_file(with_overrides(saved, request)).freeze()
        yield ClusterView(snapshot, with_kueue(policy or SimPolicy(), request), file.name)


def _seen(backend: Any, source: str, moments: Moments) -> Iterator[ClusterView]:
    """Observations of a live cluster after its initial lists; watch events are applied between two observations.

    If the cluster is unreachable at the end, the last observation says why.
    """
    from gpuconsole.cli.live import look, polled

    def sight(snapshot: Snapshot) -> ClusterView:
        return ClusterView(snapshot, backend.policy, source)

    last = sight(look(backend))
    yield last
    click.echo(f"gpuconsole: cluster loaded; watching for {format_span(moments.lasting)}", err=True)
    end = time.monotonic() + moments.lasting / SECOND
    while time.monotonic() < end:
        until = min(end, time.monotonic() + moments.every / SECOND)
        for _ in polled(backend, until):
            pass  # The backend applies its events.
        if not backend.health.lost:
            last = sight(backend.snapshot())
            yield last
    if lost := backend.health.lost:
        yield last._replace(lost="; ".join((lost, *backend.health.unread[:1])))


def _recorded(settings: Config) -> ForecastDifferences:
    """The comparison of all recorded live sessions. Raises HistoryError."""
    found = ForecastDifferences()
    for file in reversed(settings.history_files):
        with earlier_sessions(file) as db:
            found += queries.compared(db, KEPT)
    return found
