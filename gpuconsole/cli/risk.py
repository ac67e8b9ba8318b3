"""`gpuconsole risk`: preemption risk of running workloads."""

import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, lines_of, nothing_said
from gpuconsole.cli.simulate import Duration
from gpuconsole.insight.data_gaps import PLACES, missing_for_forecast, missing_for_placement
from gpuconsole.insight.preemption.risk import (
    EFFORT,
    LIMIT,
    RUNS,
    Risk,
    eviction_risk_steps,
    reclaim_risk,
)
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import MINUTE, SECOND, Span, format_span, format_time
from gpuconsole.model.cooperative import Progress
from gpuconsole.ui.answers.cluster_reports import endangered, risk_lines

VERSION = 6
"""Version of the answer in the JSON document."""
PATIENCE = 1.0
"""Seconds between two progress lines on stderr; an answer within this time prints none."""
WITHIN = 7.0
"""Seconds for the whole answer, reading of the cluster included; the simulation runs get what is left."""
LEAST = 1.5
"""Minimum seconds for the simulation runs, even if reading the cluster took long."""


@click.command()
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    help=f"Number of full simulation runs. Default: {RUNS}, fewer on a busy cluster.",
)
@click.option("--horizon", type=Duration(least=MINUTE), default="6h", show_default=True, help="How far to look ahead.")
@click.option("--chance", type=int, default=0, show_default=True, help="Random seed of the runs.")
@answering
def command(asked: QuestionContext, runs: int | None, horizon: Span, chance: int) -> CommandAnswer:
    """Show the preemption risk of running workloads: probability, cause, lost work, preemption order.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. The risk comes from many
    simulations that start from the present cluster; with --until, a simulated cluster first runs to get a history.
    """
    if lacking := missing_for_placement(asked.simulation.snapshot()):
        answer = reclaim_risk(asked.standing())
        unknown = tuple(f"preemption risk and lost work: {text}" for text in lacking)
        return CommandAnswer(
            kind="Risk", body=_body(answer), lines=risk_lines(answer), version=VERSION, unknown=unknown
        )
    if lacking := missing_for_forecast(asked.simulation.snapshot(), *PLACES):
        return nothing_said("Risk", lacking, VERSION)
    found = asked.standing() if asked.found is not None else None
    pieces = eviction_risk_steps(
        asked.simulation,
        lines_of(asked),
        runs=runs or RUNS,
        seed=chance,
        horizon=horizon,
        found=found,
        effort=EFFORT if runs is None else None,
        clock=time.monotonic,
        limit=min(LIMIT, max(LEAST, asked.began + WITHIN - time.monotonic())),
    )
    answer = _last_answer(pieces, runs or RUNS, asked.began)
    return CommandAnswer(kind="Risk", body=_body(answer), lines=risk_lines(answer), version=VERSION)


def _last_answer(pieces: Iterator[Progress[Risk]], runs: int, began: float) -> Risk:
    """The result of all runs. While they take long, the result so far is printed to stderr.

    `began` is the start of the answer on the monotonic clock, in seconds.
    """
    said, answer = began, None
    for piece in pieces:
        answer = piece.answer or answer
        if piece.answer is not None and not piece.last and time.monotonic() - said >= PATIENCE:
            said = time.monotonic()
            ahead = format_span(piece.answer.horizon - piece.answer.time)
            so_far = f"{endangered(piece.answer)} of {counted(len(piece.answer.workloads), 'workload')}"
            click.echo(
                f"gpuconsole: run {piece.done} of at most {runs}: {so_far} may be evicted within {ahead}", err=True
            )
    assert answer is not None
    return answer


def _body(answer: Risk) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(answer)
    for name in ("time", "horizon", "wanted_horizon"):
        body[name] = format_time(body[name])
    for workload_risk in body["dangers"]:
        median = workload_risk.pop("median")
        workload_risk["median_seconds"] = median / SECOND if median is not None else None
    return body
