"""`gpuconsole risk`: what may evict running work, and how probable that is."""

from typing import Any

import click
import msgspec

from gpuconsole.cli.answering import Answer, Asked, answering, lines_of, nothing_said
from gpuconsole.cli.simulate import Duration
from gpuconsole.insight.basis import PLACES, unforeseeable, unplaceable
from gpuconsole.insight.risk import RUNS, Risk, first_in_line, risk
from gpuconsole.model.clock import MINUTE, SECOND, Span, format_time
from gpuconsole.ui.answers.risk import risk_lines

VERSION = 4


@click.command()
@click.option("--runs", type=click.IntRange(1, 1000), default=RUNS, show_default=True, help="Run it so many times.")
@click.option("--horizon", type=Duration(least=MINUTE), default="6h", show_default=True, help="Look so far ahead.")
@click.option("--chance", type=int, default=0, show_default=True, help="The seed of the runs.")
@answering
def command(asked: Asked, runs: int, horizon: Span, chance: int) -> Answer:
    """Show for each running workload how probable an eviction is, by what, and for which lenders it would go.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. The cluster is run forward
    many times from what an observer knows of it; with --until, a simulated one has a past to go by.
    """
    if lacking := unplaceable(asked.simulation.snapshot()):
        answer = first_in_line(asked.standing())
        unknown = tuple(f"how probable an eviction is, and what it would lose: {text}" for text in lacking)
        return Answer(kind="Risk", body=_body(answer), lines=risk_lines(answer), version=VERSION, unknown=unknown)
    if lacking := unforeseeable(asked.simulation.snapshot(), *PLACES):
        return nothing_said("Risk", lacking, VERSION)
    found = asked.standing() if asked.found is not None else None
    answer = risk(asked.simulation, lines_of(asked), runs=runs, seed=chance, horizon=horizon, found=found)
    return Answer(kind="Risk", body=_body(answer), lines=risk_lines(answer), version=VERSION)


def _body(answer: Risk) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(answer)
    body["time"], body["horizon"] = format_time(answer.time), format_time(answer.horizon)
    for danger in body["dangers"]:
        median = danger.pop("median")
        danger["median_seconds"] = median / SECOND if median is not None else None
    return body
