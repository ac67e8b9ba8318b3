"""`gpuconsole simulate`: runs the simulator headless and prints a report or the events."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from gpuconsole.cli.options import OpenRequest, clustered, configured
from gpuconsole.cli.report import as_json, as_text, pools_as_text, record, report
from gpuconsole.cli.scenarios import misread_expectations
from gpuconsole.cli.sources import open_simulation
from gpuconsole.errors import SourceError, UsageError
from gpuconsole.insight.cost import pools
from gpuconsole.model.clock import Span, Time, format_exactly, format_span, parse_span
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.text import clean
from gpuconsole.sim.conformance_run import run_lines
from gpuconsole.sim.engine import Simulation, write_snapshot

SLICES = 200
"""Steps of the progress bar."""


class Duration(click.ParamType[Span]):
    """A duration such as 90s, 30m or 24h."""

    name = "duration"

    def __init__(self, least: Span = 0) -> None:
        """Reject durations below `least`."""
        self._least = least

    def convert(self, value: str | Span, param: click.Parameter | None, ctx: click.Context | None) -> Span:
        if not isinstance(value, str):
            return value
        try:
            span = parse_span(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if span < self._least:
            self.fail(f"{value} is too short; use at least {format_span(self._least)}", param, ctx)
        return span


@click.command()
@clustered
@click.option("--until", type=Duration(), default="24h", show_default=True, help="Simulated time to run.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice([what.value for what in HistoryEventKind]),
    help="Only these event types.",
)
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Save the final state as a snapshot.")
@click.option(
    "--cycles", type=click.File("rb"), help="Run scheduling cycles only, one JSON scenario per line; - is stdin."
)
def command(
    request: OpenRequest, until: Span, output: str, types: tuple[str, ...], save: Path | None, cycles: BinaryIO | None
) -> int:
    """Run a headless simulation.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin.
    """
    if cycles is not None:
        if request != OpenRequest():
            raise UsageError("--cycles reads its own scenarios; remove FILES and the cluster options")
        return _run_bare(cycles)
    request, settings = configured(request)
    opened = open_simulation(request, settings)
    simulation = opened.simulation
    before = simulation.snapshot()
    everything = _run(simulation, until)
    for notice in [*opened.notices, *_refusals(everything, before.time)]:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    lines = [line for line in everything if not types or line.what.value in types]
    if save is not None:
        _save(simulation, save)
    if output == "jsonl":
        for line in lines:
            click.echo(msgspec.json.encode(record(line)))
        return 0
    summary = report(lines, before=before, after=simulation.snapshot(), seed=simulation.seed)
    rows = pools(simulation.snapshot())
    if output == "json":
        facts = {**as_json(summary), **({"pools": rows} if rows else {})}
        click.echo(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
    else:
        for text in [*pools_as_text(rows), *as_text(summary)]:
            click.echo(text)
    return 0


def _run_bare(lines: BinaryIO) -> int:
    failed = False
    for result in run_lines(lines, lines.name, misread_expectations):
        click.echo(json.dumps(result, separators=(",", ":")))
        failed = failed or "error" in result
    return 1 if failed else 0


def _refusals(lines: Iterable[HistoryEvent], start: Time) -> Iterator[str]:
    """Commands of the scenario that were refused, so that the results may not be as intended."""
    for line in lines:
        if line.what is HistoryEventKind.COMMAND_REFUSED:
            yield f"+{format_exactly(line.time - start)} refused {line.reason}: {line.message}"


def _run(simulation: Simulation, until: Span) -> list[HistoryEvent]:
    """Run the simulation, with a progress bar if stderr is a terminal."""
    start, lines = simulation.now, list[HistoryEvent]()
    with click.progressbar(
        range(1, SLICES + 1), file=sys.stderr, label="simulating", hidden=not sys.stderr.isatty()
    ) as bar:
        for part in bar:
            simulation.advance(start + until * part // SLICES)
            lines += (event for event in simulation.drain() if isinstance(event, HistoryEvent))
    return lines


def _save(simulation: Simulation, file: Path) -> None:
    try:
        file.write_bytes(write_snapshot(simulation))
    except OSError as error:
        raise SourceError(str(file), error.strerror or str(error)) from error
