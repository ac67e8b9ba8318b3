"""The option `gpuconsole whatif --engine`: the same jobs under Kueue and other schedulers, side by side."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, nothing_said
from gpuconsole.cli.sources import FindingsError
from gpuconsole.errors import SourceError
from gpuconsole.insight.data_gaps import missing_for_forecast
from gpuconsole.insight.health.engines import engines
from gpuconsole.insight.tables import counted, seconds, table
from gpuconsole.insight.whatif.engine_comparison import (
    ComparedJob,
    ComparedQueue,
    EngineComparison,
    EngineTotals,
    compare_engines,
)
from gpuconsole.model.clock import HOUR, SECOND, Span, Time, format_exactly, format_seconds, format_time
from gpuconsole.model.documents.sources import read_file
from gpuconsole.scheduling.volcano.config import HELM_CONF
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.sim.policy import SimPolicy, Substitute
from gpuconsole.sim.scenario import Scenario, build
from gpuconsole.sim.substitutes import load_of, queued, under

KIND, ENGINES_VERSION = "EngineComparison", 1
KUEUE = "kueue"
ENGINES = (KUEUE, *(substitute.value for substitute in Substitute))
HORIZON = 24 * HOUR
MOST = 50
"""Jobs that the text lists; `-o json` has all."""
NOTHING = "–"


def compared(asked: QuestionContext, chosen: Sequence[str], horizon: Span | None, conf: Path | None) -> CommandAnswer:
    """Run the jobs of a cluster under its own engines and under each of `chosen`, and compare."""
    if lacking := missing_for_forecast(asked.simulation.snapshot()):
        return nothing_said(KIND, lacking, ENGINES_VERSION)
    scenario, seed = asked.scenario, asked.simulation.seed
    if scenario is None:
        scenario = load_of(asked.found or asked.simulation.snapshot(), asked.simulation.policy, seed)
    text = _conf(conf)
    loads = [scenario, *(_under(scenario, name, text) for name in dict.fromkeys(chosen))]
    runs = [(engine_name(load.policy), build(load, seed=seed, gpus_per_node=asked.gpus_per_node)) for load in loads]
    answer = compare_engines(runs, HORIZON if horizon is None else horizon)
    return CommandAnswer(
        kind=KIND, body=engines_as_body(answer), lines=list(engines_as_text(answer)), version=ENGINES_VERSION
    )


def _under(scenario: Scenario, name: str, conf: str) -> Scenario:
    return queued(scenario) if name == KUEUE else under(scenario, Substitute(name), conf)


def engine_name(policy: SimPolicy) -> str:
    """Admission and placement engine: `Kueue 0.19, kube-scheduler`."""
    known = engines(policy)
    return ", ".join(engine.name for engine in (known.admission, known.placement) if engine.name)


def _conf(file: Path | None) -> str:
    """Text of the volcano-scheduler.conf; without a file that of the Helm chart. Raises FindingsError."""
    if file is None:
        return HELM_CONF
    source = read_file(file)
    if source.troubles:
        raise SourceError(str(file), source.troubles[0].problem)
    wrong = [f"{one.file}:{one.line}: {one.problem}" for one in read_configuration(source.text, str(file)).errors]
    if wrong:
        raise FindingsError("\n".join(wrong))
    return source.text


_engine_comparison_SPANS = {"wait_median", "wait_p95", "wait_longest"}
_MOMENTS = {"time", "horizon", "submitted", "started", "finished"}


def engines_as_body(answer: EngineComparison) -> dict[str, Any]:
    """The comparison as plain values: times as RFC 3339, durations in seconds."""
    return {
        **_engine_comparison_plain(answer),
        "engines": [_with_utilization(totals) for totals in answer.engines],
        "queues": [_engine_comparison_plain(queue) for queue in answer.queues],
        "jobs": [
            {**_engine_comparison_plain(job), "courses": [_engine_comparison_plain(course) for course in job.courses]}
            for job in answer.jobs
        ],
    }


def _with_utilization(totals: EngineTotals) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in _engine_comparison_plain(totals).items():
        plain[name] = value
        if name == "capacity_hours":
            plain["utilization"] = totals.utilization
    return plain


def _engine_comparison_plain(obj: Struct) -> dict[str, Any]:
    return dict(_engine_comparison_field(obj, name, getattr(obj, name)) for name in obj.__struct_fields__)


def _engine_comparison_field(obj: Struct, name: str, value: Any) -> tuple[str, Any]:
    if name in _engine_comparison_SPANS:
        spans = [None if span is None else span / SECOND for span in (value if isinstance(value, tuple) else (value,))]
        return f"{name}_seconds", spans if isinstance(value, tuple) else spans[0]
    if name in _MOMENTS and not isinstance(obj, EngineTotals | ComparedQueue):
        return name, None if value is None else format_time(value)
    return name, msgspec.to_builtins(value)


def engines_as_text(answer: EngineComparison) -> Iterator[str]:
    """The comparison as text: totals, queues, jobs."""
    length = format_exactly(answer.horizon - answer.time)
    yield f"{counted(len(answer.jobs), 'job')} from {seconds(answer.time)} to +{length}, seed {answer.seed}"
    yield ""
    names = [totals.engine.upper() for totals in answer.engines]
    yield from table(("", *names), [(label, *map(cell, answer.engines)) for label, cell in _rows(len(answer.jobs))])
    if answer.queues:
        yield ""
        yield from _engine_comparison_queues(answer, names)
    if answer.jobs:
        yield ""
        yield from _jobs(answer, names)


def _rows(jobs: int) -> Sequence[tuple[str, Callable[[EngineTotals], str]]]:
    return (
        ("jobs started", lambda totals: f"{totals.started:,}"),
        ("jobs finished", lambda totals: f"{totals.finished:,}"),
        ("jobs not started", lambda totals: f"{jobs - totals.started:,}"),
        ("wait p50", lambda totals: _engine_comparison_span(totals.wait_median)),
        ("wait p95", lambda totals: _engine_comparison_span(totals.wait_p95)),
        ("wait max", lambda totals: _engine_comparison_span(totals.wait_longest)),
        ("mean GPU utilization", lambda totals: _engine_comparison_percent(totals.utilization)),
        ("preemptions", lambda totals: f"{totals.preemptions:,}"),
        ("evictions", lambda totals: f"{totals.evictions:,}"),
        ("GPU-hours used", lambda totals: f"{totals.gpu_hours:,.1f}"),
        ("GPU-hours lost", lambda totals: f"{totals.lost_gpu_hours:,.1f}"),
        ("cost of lost work", lambda totals: f"${totals.lost_cost:,.2f}"),
    )


def _engine_comparison_queues(answer: EngineComparison, names: Sequence[str]) -> list[str]:
    rows = [
        (
            queue.queue,
            queue.jobs,
            *(
                f"{started} started, {_engine_comparison_span(wait)} median wait, {hours:.1f} GPU-h"
                for started, wait, hours in zip(queue.started, queue.wait_median, queue.gpu_hours, strict=True)
            ),
        )
        for queue in answer.queues
    ]
    return table(("QUEUE", "JOBS", *names), rows)


def _jobs(answer: EngineComparison, names: Sequence[str]) -> list[str]:
    """Table of the first jobs with their waits."""
    rows = [
        (
            job.job,
            job.queue,
            job.gpus,
            _engine_comparison_at(job.submitted, answer.time),
            *_engine_comparison_starts(job),
        )
        for job in answer.jobs[:MOST]
    ]
    lines = table(("JOB", "QUEUE", "GPUS", "SUBMITTED", *(f"WAIT: {name}" for name in names)), rows)
    more = len(answer.jobs) - MOST
    return [*lines, f"… and {more:,} more (-o json has all)"] if more > 0 else lines


def _engine_comparison_starts(job: ComparedJob) -> Iterator[str]:
    for course in job.courses:
        wait = "not started" if course.started is None else _engine_comparison_span(course.started - job.submitted)
        yield f"{wait}, evicted {course.evictions}×" if course.evictions else wait


def _engine_comparison_at(time: Time, start: Time) -> str:
    return f"+{format_seconds(time - start)}"


def _engine_comparison_span(span: Span | None) -> str:
    return NOTHING if span is None else format_seconds(span)


def _engine_comparison_percent(part: float | None) -> str:
    return NOTHING if part is None else f"{100 * part:.1f}%"
