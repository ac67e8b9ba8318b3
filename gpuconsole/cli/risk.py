"""`gpuconsole risk`: what may evict running work, and how probable that is."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from gpuconsole.cli.answering import Answer, Asked, answering, lines_of
from gpuconsole.cli.simulate import Duration
from gpuconsole.insight.risk import RUNS, Danger, Risk, risk
from gpuconsole.insight.tables import counted, table
from gpuconsole.model.clock import SECOND, Span, format_span, format_time
from gpuconsole.ui.names import called

COLUMNS = (
    "WORKLOAD",
    "QUEUE",
    "GPUS",
    "BORROWED",
    "PRIORITY",
    "RISK",
    "MEDIAN",
    "BY",
    "GOES FOR",
    "LOSES GPU-H",
    "COST $",
)


@click.command()
@click.option("--runs", type=click.IntRange(1, 1000), default=RUNS, show_default=True, help="Run it so many times.")
@click.option("--horizon", type=Duration(), default="6h", show_default=True, help="Look so far ahead.")
@click.option("--chance", type=int, default=0, show_default=True, help="The seed of the runs.")
@answering
def command(asked: Asked, runs: int, horizon: Span, chance: int) -> Answer:
    """Show for each running workload how probable an eviction is, by what, and for which lenders it would go.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. The cluster is run forward
    many times from what an observer knows of it; with --until, a simulated one has a past to go by.
    """
    answer = risk(asked.simulation, lines_of(asked), runs=runs, seed=chance, horizon=horizon)
    return Answer(kind="Risk", body=_body(answer), lines=list(as_text(answer)))


def as_text(answer: Risk) -> Iterator[str]:
    """The answer for people."""
    if not answer.dangers:
        yield "nothing runs"
        return
    ahead = format_span(answer.horizon - answer.time)
    endangered = sum(one.probability > 0 for one in answer.dangers)
    yield f"{endangered} of {counted(len(answer.dangers), 'running workload')} may be evicted within {ahead}"
    yield ""
    yield from table(COLUMNS, [_row(one, answer.runs) for one in answer.dangers])
    yield ""
    yield f"{counted(answer.runs, 'run')} of the cluster from {format_time(answer.time)} on; assumed:"
    yield from (f"  {text}" for text in answer.assumptions)


def _row(one: Danger, runs: int) -> tuple[object, ...]:
    median = format_span(one.median // SECOND * SECOND) if one.median is not None else "–"
    causes = "; ".join(f"{c.by_queue or c.reason} {c.runs / runs:.0%}" for c in one.causes[:2])
    turns = ", ".join(f"{turn.lender} as no. {turn.place}" for turn in one.turns[:2])
    return (
        called(one.workload),
        one.queue,
        one.gpus,
        one.borrowed or "–",
        one.priority,
        f"{one.probability:.0%}",
        median,
        causes or "–",
        turns or "–",
        f"{one.lost_gpu_hours:.1f}",
        f"{one.cost:.2f}",
    )


def _body(answer: Risk) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(answer)
    body["time"], body["horizon"] = format_time(answer.time), format_time(answer.horizon)
    for danger in body["dangers"]:
        median = danger.pop("median")
        danger["median_seconds"] = median / SECOND if median is not None else None
    return body
