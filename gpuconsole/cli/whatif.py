"""`gpuconsole whatif`: changes simulated in a fork, compared with the baseline; or a comparison of schedulers.

The outcome of changes (`as_text`, `as_body`) has the requested work, the victims, and the numbers of baseline and
changed fork side by side. With --engine, the same jobs run under Kueue and other schedulers (`engines_as_text`,
`engines_as_body`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from gpuconsole.cli.answering import (
    CommandAnswer,
    QuestionContext,
    agreement_body,
    agreement_lines,
    answering,
    nothing_said,
)
from gpuconsole.cli.options import as_line
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import FindingsError, placed
from gpuconsole.errors import SourceError, UsageError
from gpuconsole.insight.data_gaps import PLACES, latency_assumption, missing_for_forecast, queue_assumptions, run_times
from gpuconsole.insight.health.engines import engines
from gpuconsole.insight.tables import Cell, counted, seconds, text_table
from gpuconsole.insight.whatif.answer import EvictedWorkload, in_runs, in_some_runs, rests_on, verdict
from gpuconsole.insight.whatif.engine_comparison import (
    ComparedJob,
    ComparedQueue,
    EngineComparison,
    EngineTotals,
    compare_engines,
)
from gpuconsole.insight.whatif.whatif import FEASIBLE, StartShift, WhatIf, WhatIfOutcome, what_if_steps
from gpuconsole.model.clock import HOUR, SECOND, Span, Time, format_exactly, format_seconds, format_tenths, format_time
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.devices import device_cell
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.manifests import Severity, load
from gpuconsole.model.manifests.kinds import is_name_taken
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.scheduling.volcano.config import HELM_CONF
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.sim.policy import SimPolicy, Substitute
from gpuconsole.sim.scenario import Scenario, build_simulation, for_kueue, for_scheduler, from_snapshot
from gpuconsole.sim.scenario_form import Changes, ScenarioError, read_changes
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called, named
from gpuconsole.workers.forked_future import fork_future

NOTHING = "–"
"""Text for a number that is unknown or does not exist."""
MOST = 50
"""Maximum number of lines per table of the text; the JSON document has all."""


def as_text(answer: WhatIf, against: str = "", *, of_nodes: bool = True) -> list[str]:
    """Format the outcome: verdict, requested work, victims, numbers.

    `against` names the changes of the baseline, if any. If `of_nodes` is false, numbers that depend on nodes are
    unknown.
    """
    said = "no change can be applied" if answer.in_vain else FEASIBLE
    head = f"At {seconds(answer.time)}, to +{format_seconds(answer.horizon - answer.time)}; {said}{rests_on(answer)}"
    lines = [named(verdict(answer)), head, *_first([f"refused: {text}" for text in answer.refused])]
    lines += _first([f"no change (already so): {named(text)}" for text in answer.so_already])
    lines += _first([f"admits no workloads: {closed.queue}: {closed.why}" for closed in answer.closed])
    lines += _outcomes(answer.outcomes, answer.time)
    lines += [f"with {against}: {line}" for line in _outcomes(answer.against, answer.time)]
    if answer.in_vain or answer.empty:
        return lines
    lines += _evicted("DIRECT VICTIMS", answer.victims, answer.time, freed=True)
    lines += _evicted("OWN EVICTIONS", answer.own_evictions, answer.time)
    lines += _evicted("KNOCK-ON EVICTIONS", answer.knock_on, answer.time)
    lines += _evicted("AVOIDED EVICTIONS", answer.spared, answer.time)
    lines += _shifts(answer.shifts, answer.time)
    return [*lines, "", *_numbers(answer, against, of_nodes)]


def _first(lines: Sequence[str], more: str = "") -> list[str]:
    """The first lines and the number of the others; `more` describes these."""
    return [*lines[:MOST], *_left(len(lines), more)]


def _left(count: int, more: str = "") -> list[str]:
    """A line with the number of omitted lines; none if all are shown."""
    return [f"… and {count - MOST:,} more{more} (-o json has all)"] if count > MOST else []


def _outcomes(outcomes: Sequence[WhatIfOutcome], start: Time) -> list[str]:
    rest = outcomes[MOST:]
    late = sum(outcome.admitted is None for outcome in rest)
    return _first([_outcome(one, start) for one in outcomes], f", {late:,} of them not admitted before the horizon")


def _outcome(outcome: WhatIfOutcome, start: Time) -> str:
    what = f"{called(outcome.workload)}, {counted(outcome.gpus, outcome.unit)}"
    if outcome.admitted is None:
        own = f" ({outcome.text})" if outcome.text and outcome.text != outcome.why else ""
        runs = in_some_runs(outcome.admitted_range)
        return f"{what}: not admitted before the horizon{runs}. {named(outcome.why)}{own}"
    where = f" from {', '.join(outcome.flavors)}" if outcome.flavors else ""
    nodes = f" on {', '.join(outcome.nodes[:4])}{' …' if len(outcome.nodes) > 4 else ''}" if outcome.nodes else ""
    late = f"; {named(outcome.lacking)}" if outcome.lacking else ""
    if outcome.admitted < start:
        return f"{what}: already admitted since {seconds(outcome.admitted)}{late}"
    runs = in_runs(outcome.admitted_range, start)
    at = _at_tenths(outcome.admitted, start) if runs else _at(outcome.admitted, start)
    return f"{what}: admitted at {at}{runs}{where}{nodes}{_starts(outcome, start)}{late}"


def _starts(outcome: WhatIfOutcome, start: Time) -> str:
    """The start, if it is a range."""
    runs = in_runs(outcome.started_range, start)
    return f", starts at {_at(outcome.started, start)}{runs}" if runs and outcome.started is not None else ""


def _evicted(title: str, workloads: Sequence[EvictedWorkload], start: Time, *, freed: bool = False) -> list[str]:
    """A table of evicted workloads; with `freed`, also when their quota and nodes are free."""
    if not workloads:
        return []
    rows = [
        (
            called(one.workload),
            one.queue,
            device_cell(one.gpus, one.unit),
            one.evictions,
            _at(one.first, start),
            *((_at_tenths(one.released, start), _at_tenths(one.pods_gone, start)) if freed else ()),
            _and_more([called(name) for name in one.by]),
            _and_more(one.rules),
            f"{one.lost_gpu_hours:.1f}",
            fmt.money(one.cost),
            _at(one.returns, start),
        )
        for one in workloads
    ]
    when = ("TIMES", "FIRST", *(("RELEASED", "PODS GONE") if freed else ()))
    head = (title, "QUEUE", "GPUS", *when, "BY", "RULE", "LOST GPU-H", "COST", "RESTART")
    return ["", *_table(head, rows)]


def _and_more(names: Sequence[str]) -> str:
    """The first name and the number of the others."""
    if not names:
        return NOTHING
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _shifts(shifts: tuple[StartShift, ...], start: Time) -> list[str]:
    if not shifts:
        return []
    rows = [
        (called(s.workload), s.queue, device_cell(s.gpus, s.unit), _at(s.without, start), _at(s.changed, start))
        for s in shifts
    ]
    return ["", *_table(("START TIME CHANGES", "QUEUE", "GPUS", "BASELINE", "CHANGED"), rows)]


def _table(head: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> list[str]:
    """The first rows and the number of the others."""
    return [*text_table(head, rows[:MOST]), *_left(len(rows))]


def _numbers(answer: WhatIf, against: str, of_nodes: bool) -> list[str]:
    used = (
        (f"{answer.unit}s in use", answer.gpus_now, answer.gpus_without, answer.gpus),
        (f"{answer.unit}s in the cluster", answer.gpus_total, answer.gpus_total_without, answer.gpus_total_with),
        (
            "mean utilization",
            NOTHING,
            _percent(answer.gpu_hours_without, answer.capacity_hours_without),
            _percent(answer.gpu_hours, answer.capacity_hours),
        ),
    )
    hourly = ("node cost per hour", NOTHING, fmt.money(answer.hourly_without), fmt.money(answer.hourly))
    rows = [
        *_queues(answer),
        *(used if of_nodes else [_unknown(row[0]) for row in used]),
        ("wait p50", NOTHING, _span(answer.median_wait_without), _span(answer.median_wait)),
        ("wait p95", NOTHING, _span(answer.p95_wait_without), _span(answer.p95_wait)),
        ("pending: quota", NOTHING, answer.waiting_without, answer.waiting),
        *_besides("admission checks", answer.checking_without, answer.checking),
        *(_besides("scheduling", answer.placeless_without, answer.placeless) if of_nodes else ()),
        ("fairness (Jain's index)", NOTHING, _index(answer.fairness_without), _index(answer.fairness)),
        ("GPU-hours lost", NOTHING, f"{answer.lost_gpu_hours_without:.1f}", f"{answer.lost_gpu_hours:.1f}"),
        ("cost of lost work", NOTHING, fmt.money(answer.cost_without), fmt.money(answer.cost)),
        hourly if of_nodes else _unknown(hourly[0]),
    ]
    baseline = f"WITH {against}" if against else "BASELINE"
    when = f"QUEUES AND GPUS AT {_at(answer.compared, answer.time)}"
    left = _left(len(answer.queues), " queues")
    return [*text_table((when, "NOW", baseline, "CHANGED"), [tuple(map(str, row)) for row in rows]), *left]


def _unknown(what: str) -> tuple[Cell, ...]:
    return (what, NOTHING, NOTHING, NOTHING)


def _besides(what: str, without: int, changed: int) -> Iterator[tuple[Cell, ...]]:
    """A row for workloads that hold quota and do not run yet; none if there are none."""
    if without or changed:
        yield f"pending: {what}", NOTHING, without, changed


def _queues(answer: WhatIf) -> Iterator[tuple[Cell, ...]]:
    for queue in answer.queues[:MOST]:
        with_quota = f"{queue.used}/{queue.nominal}" if queue.nominal != queue.nominal_now else queue.used
        amounts = (f"{queue.used_now}/{queue.nominal_now}", queue.used_without, with_quota)
        yield (f"{queue.queue}, {queue.unit}s", *amounts)
        if {queue.borrowed_now, queue.borrowed_without, queue.borrowed} != {queue.borrowed}:
            yield (f"{queue.queue}, borrowed", queue.borrowed_now, queue.borrowed_without, queue.borrowed)
        shares = (f"{share:.0f}%" for share in (queue.share_now, queue.share_without, queue.share))
        yield (f"{queue.queue}, % of max quota", *shares)


def _percent(gpu_hours: float, capacity: float) -> str:
    return f"{100 * gpu_hours / capacity:.1f}%" if capacity else NOTHING


def _index(fairness: float | None) -> str:
    return NOTHING if fairness is None else f"{fairness:.2f}"


def _span(span: Span | None) -> str:
    return NOTHING if span is None else format_seconds(span)


def _at_tenths(moment: Time | None, start: Time) -> str:
    return NOTHING if moment is None else f"+{format_tenths(moment - start)}"


def _at(moment: Time | None, start: Time) -> str:
    return NOTHING if moment is None else f"+{format_seconds(moment - start)}"


KIND, ENGINES_VERSION = "EngineComparison", 1
"""Of the JSON document of an engine comparison."""
KUEUE = "kueue"
ENGINES = (KUEUE, *(substitute.value for substitute in Substitute))
"""Values of `--engine`."""
HORIZON = 24 * HOUR
"""Simulated time of an engine comparison, unless --horizon is given."""


def compared(asked: QuestionContext, chosen: Sequence[str], horizon: Span | None, conf: Path | None) -> CommandAnswer:
    """Run the jobs of a cluster under its own engines and under each of `chosen`, and compare the results.

    `horizon` is the simulated time, None for `HORIZON`; `conf` is a file with Volcano's scheduler configuration.
    """
    if lacking := missing_for_forecast(asked.simulation.snapshot()):
        return nothing_said(KIND, lacking, ENGINES_VERSION)
    scenario, seed = asked.scenario, asked.simulation.seed
    if scenario is None:
        scenario = from_snapshot(asked.found or asked.simulation.snapshot(), asked.simulation.policy, seed)
    text = _conf(conf)
    loads = [scenario, *(_under(scenario, name, text) for name in dict.fromkeys(chosen))]
    runs = [
        (engine_name(load.policy), build_simulation(load, seed=seed, gpus_per_node=asked.gpus_per_node))
        for load in loads
    ]
    answer = compare_engines(runs, HORIZON if horizon is None else horizon)
    return CommandAnswer(
        kind=KIND, body=engines_as_body(answer), lines=list(engines_as_text(answer)), version=ENGINES_VERSION
    )


def _under(scenario: Scenario, name: str, conf: str) -> Scenario:
    """The scenario with the engine of this name; `conf` is Volcano's configuration."""
    return for_kueue(scenario) if name == KUEUE else for_scheduler(scenario, Substitute(name), conf)


def engine_name(policy: SimPolicy) -> str:
    """Name the engines of a simulation for admission and placement: `Kueue 0.19, kube-scheduler`."""
    known = engines(policy)
    return ", ".join(engine.name for engine in (known.admission, known.placement) if engine.name)


def _conf(file: Path | None) -> str:
    """Text of the volcano-scheduler.conf; without a file that of the Helm chart. Raises SourceError, FindingsError."""
    if file is None:
        return HELM_CONF
    source = read_file(file)
    if source.troubles:
        raise SourceError(str(file), source.troubles[0].problem)
    wrong = [f"{one.file}:{one.line}: {one.problem}" for one in read_configuration(source.text, str(file)).errors]
    if wrong:
        raise FindingsError("\n".join(wrong))
    return source.text


_ENGINE_SPANS = {"wait_median", "wait_p95", "wait_longest"}
_ENGINE_TIMES = {"time", "horizon", "submitted", "started", "finished"}
"""Fields with times; of totals and queues, `started` and `finished` are counts."""


def engines_as_body(answer: EngineComparison) -> dict[str, Any]:
    """Return the comparison as JSON values: times as RFC 3339, durations in seconds."""
    return {
        **_engine_fields(answer),
        "engines": [_with_utilization(totals) for totals in answer.engines],
        "queues": [_engine_fields(queue) for queue in answer.queues],
        "jobs": [
            {**_engine_fields(job), "courses": [_engine_fields(course) for course in job.courses]}
            for job in answer.jobs
        ],
    }


def _with_utilization(totals: EngineTotals) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in _engine_fields(totals).items():
        plain[name] = value
        if name == "capacity_hours":
            plain["utilization"] = totals.utilization
    return plain


def _engine_fields(obj: Struct) -> dict[str, Any]:
    return dict(_engine_field(obj, name, getattr(obj, name)) for name in obj.__struct_fields__)


def _engine_field(obj: Struct, name: str, value: Any) -> tuple[str, Any]:
    if name in _ENGINE_SPANS:
        spans = [None if span is None else span / SECOND for span in (value if isinstance(value, tuple) else (value,))]
        return f"{name}_seconds", spans if isinstance(value, tuple) else spans[0]
    if name in _ENGINE_TIMES and not isinstance(obj, EngineTotals | ComparedQueue):
        return name, None if value is None else format_time(value)
    return name, msgspec.to_builtins(value)


def engines_as_text(answer: EngineComparison) -> Iterator[str]:
    """Format the comparison as lines: totals, queues, jobs."""
    length = format_exactly(answer.horizon - answer.time)
    yield f"{counted(len(answer.jobs), 'job')} from {seconds(answer.time)} to +{length}, seed {answer.seed}"
    yield ""
    names = [totals.engine.upper() for totals in answer.engines]
    yield from text_table(
        ("", *names), [(label, *map(cell, answer.engines)) for label, cell in _total_rows(len(answer.jobs))]
    )
    if answer.queues:
        yield ""
        yield from _engine_queues(answer, names)
    if answer.jobs:
        yield ""
        yield from _engine_jobs(answer, names)


def _total_rows(jobs: int) -> Sequence[tuple[str, Callable[[EngineTotals], str]]]:
    return (
        ("jobs started", lambda totals: f"{totals.started:,}"),
        ("jobs finished", lambda totals: f"{totals.finished:,}"),
        ("jobs not started", lambda totals: f"{jobs - totals.started:,}"),
        ("wait p50", lambda totals: _span(totals.wait_median)),
        ("wait p95", lambda totals: _span(totals.wait_p95)),
        ("wait max", lambda totals: _span(totals.wait_longest)),
        ("mean GPU utilization", lambda totals: _utilization(totals.utilization)),
        ("preemptions", lambda totals: f"{totals.preemptions:,}"),
        ("evictions", lambda totals: f"{totals.evictions:,}"),
        ("GPU-hours used", lambda totals: f"{totals.gpu_hours:,.1f}"),
        ("GPU-hours lost", lambda totals: f"{totals.lost_gpu_hours:,.1f}"),
        ("cost of lost work", lambda totals: fmt.money(totals.lost_cost)),
    )


def _engine_queues(answer: EngineComparison, names: Sequence[str]) -> list[str]:
    rows: list[tuple[Cell, ...]] = [
        (
            queue.queue,
            queue.jobs,
            *(
                f"{started} started, {_span(wait)} median wait, {hours:.1f} GPU-h"
                for started, wait, hours in zip(queue.started, queue.wait_median, queue.gpu_hours, strict=True)
            ),
        )
        for queue in answer.queues
    ]
    return text_table(("QUEUE", "JOBS", *names), rows)


def _engine_jobs(answer: EngineComparison, names: Sequence[str]) -> list[str]:
    """Table of the first jobs with their waits."""
    rows: list[tuple[Cell, ...]] = [
        (job.job, job.queue, job.gpus, _at(job.submitted, answer.time), *_waits(job)) for job in answer.jobs[:MOST]
    ]
    lines = text_table(("JOB", "QUEUE", "GPUS", "SUBMITTED", *(f"WAIT: {name}" for name in names)), rows)
    return [*lines, *_left(len(answer.jobs))]


def _waits(job: ComparedJob) -> Iterator[str]:
    """The wait of a job under each engine, with its evictions."""
    for course in job.courses:
        wait = "not started" if course.started is None else _span(course.started - job.submitted)
        yield f"{wait}, evicted {course.evictions}×" if course.evictions else wait


def _utilization(part: float | None) -> str:
    return NOTHING if part is None else f"{100 * part:.1f}%"


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_TIMES = {
    "time",
    "compared",
    "horizon",
    "admitted",
    "admitted_without",
    "started",
    "returns",
    "without",
    "changed",
    "first",
    "last",
    "earliest",
    "latest",
    "released",
    "pods_gone",
}
_SPANS = {"median_wait", "median_wait_without", "p95_wait", "p95_wait_without"}
_INSIDE = {"evictions", "evictions_without", "subjects", "only_work", "latency"}
"""Fields that the document leaves out: sources of the eviction lists, and assumptions, which it has as `assumed`."""
_EVICTED = ("victims", "own_evictions", "knock_on", "spared")
VERSION = 6
"""Version of the answer in the JSON document."""
OF_NODES = (
    *("gpus_total", "gpus_total_without", "gpus_total_with", "gpus_now", "gpus_without", "gpus"),
    *("gpu_hours_without", "gpu_hours", "capacity_hours_without", "capacity_hours"),
    *("placeless_without", "placeless", "hourly_without", "hourly"),
)
"""Fields of the JSON document that are null unless all nodes and pods are visible."""


@click.command()
@click.option("-f", "--file", "change", type=_FILE, help="The changes: a list of steps, as in a scenario.")
@click.option("--against", type=_FILE, help="Changes of the baseline (default: none).")
@click.option(
    "--engine",
    "substitutes",
    multiple=True,
    type=click.Choice(ENGINES),
    help="Compare the same jobs under this engine; all but kueue replace Kueue. Several are allowed.",
)
@click.option("--conf", type=_FILE, help="volcano-scheduler.conf for --engine volcano (default: the Helm chart's).")
@click.option("--horizon", type=Duration(), help="How far to look ahead. Default: 1h, or 24h with --engine.")
@answering
def command(
    asked: QuestionContext,
    change: Path | None,
    against: Path | None,
    substitutes: tuple[str, ...],
    conf: Path | None,
    horizon: Span | None,
) -> CommandAnswer:
    """Simulate changes in a fork of a cluster, and compare the outcome with the baseline.

    With --engine: run the same jobs from the start under the cluster's own engines and under others, and compare.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. The cluster is never changed
    and nothing is reserved. Exits with 1 if a change cannot be applied.
    """
    if substitutes and (change is not None or against is not None):
        raise UsageError("give changes (--file) or engines (--engine), not both")
    if conf is not None and Substitute.VOLCANO not in substitutes:
        raise UsageError("--conf configures Volcano: add --engine volcano")
    if substitutes:
        return compared(asked, substitutes, horizon, conf)
    if change is None:
        raise UsageError("give changes (--file) or engines (--engine) to compare with")
    now = asked.simulation.now
    snapshot = asked.simulation.snapshot()
    wanted = changes_in(change, now, snapshot)
    other = changes_in(against, now, snapshot).commands if against is not None else ()
    if lacking := missing_for_forecast(snapshot):
        return nothing_said("WhatIf", lacking, VERSION)
    blind = snapshot.seen.missing_reasons(*PLACES)
    span = horizon if horizon is not None else wanted.horizon if wanted.horizon is not None else HOUR
    tried = asked.simulation, wanted.commands, span, other, wanted.places, asked.found
    answer = complete_answer(what_if_steps(*tried, elsewhere=fork_future, clock=time.thread_time))
    other_changes = against.name if against is not None else ""
    policy = asked.simulation.policy
    assumed = run_times(policy) if asked.found is not None else ()
    counts = asked.agreement
    return CommandAnswer(
        kind="WhatIf",
        body=as_body(answer) | (dict.fromkeys(OF_NODES) if blind else {}) | agreement_body(counts),
        lines=[*as_text(answer, other_changes, of_nodes=not blind), *agreement_lines(counts)],
        version=VERSION,
        status=int(bool(answer.refused)),
        assumed=(*assumed, *queue_assumptions(asked.simulation), latency_assumption(policy.latencies)),
        unknown=tuple(f"GPUs, nodes and node cost: {text}" for text in blind),
    )


def changes_in(file: Path, now: Time, snapshot: Snapshot = EMPTY) -> Changes:
    """Read a list of changes, and the manifests in the same file. Raises FindingsError with every problem.

    Objects with a generateName get names that no object of `snapshot` has.
    """
    names = GeneratedNames(str(now), partial(is_name_taken, snapshot))
    loaded = load([str(file)], now=now, names=names)
    errors = [as_line(finding) for finding in loaded.findings if finding.severity is Severity.ERROR]
    if errors:
        raise FindingsError("\n".join(errors))
    try:
        return read_changes(loaded.scenario, str(file), now, objects=loaded.objects, names=names)
    except ScenarioError as error:
        raise FindingsError(placed(error, str(file), loaded.lines)) from error


def as_body(answer: WhatIf) -> dict[str, Any]:
    """The outcome as plain values: verdict first, times as RFC 3339, durations in seconds, evictions per workload."""
    plain = {name: value for name, value in _plain(answer).items() if name not in _INSIDE}
    evicted = {name: [_plain(one) for one in getattr(answer, name)] for name in _EVICTED}
    return {"verdict": named(verdict(answer)), **plain, **evicted, "empty": answer.empty}


def _plain(obj: Struct) -> dict[str, Any]:
    return dict(_field(name, getattr(obj, name)) for name in obj.__struct_fields__)


def _field(name: str, value: Any) -> tuple[str, Any]:
    if name in _SPANS:
        return f"{name}_seconds", None if value is None else value / SECOND
    if name in _TIMES:
        return name, None if value is None else format_time(value)
    if isinstance(value, Struct):
        return name, _plain(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Struct):
        return name, [_plain(one) for one in value]
    return name, msgspec.to_builtins(value)
