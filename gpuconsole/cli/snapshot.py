"""`gpuconsole snapshot save`: saves the current state of a cluster to a file."""

from pathlib import Path
from typing import Any

import click
import msgspec

from gpuconsole.cli.answering import history_of
from gpuconsole.cli.options import OpenRequest, clustered, configured
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import open_simulation
from gpuconsole.errors import UsageError
from gpuconsole.insight.preemption.history import with_stories
from gpuconsole.model.clock import Span
from gpuconsole.model.redaction import redact as redacted
from gpuconsole.model.snapshot import Snapshot, encode
from gpuconsole.model.text import clean
from gpuconsole.sim.engine import write_snapshot

_REDACT = (
    "Replace names and free text. Sizes, times, reasons and messages of schedulers (with replaced names) are kept, and"
    " so are names of one or two characters, numbers and common words (main, worker, gpu)."
)


@click.group()
def command() -> None:
    """Save a cluster to a file. Open it with `gpuconsole run --snapshot FILE`."""


@command.command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, writable=True, path_type=Path))
@clustered
@click.option("--until", type=Duration(), default="0s", show_default=True, help="Simulate this long before saving.")
@click.option("--redact", is_flag=True, help=_REDACT)
def save(target: Path, request: OpenRequest, redact: bool, until: Span, **options: Any) -> None:
    """Save a live cluster (--live) or a simulation, at its start or after --until, to FILE."""
    request, settings = configured(request, **options)
    if request.live:
        if until:
            raise UsageError("--until is for simulations, --live saves the current state; remove one of them")
        from gpuconsole.cli.live import connected, look

        with connected(request, settings) as opened:
            snapshot = look(opened.backend)
            policy = opened.backend.policy
        content = encode(snapshot, msgspec.Raw(msgspec.json.encode(policy)), seed=0)
    else:
        source = open_simulation(request)
        simulation = source.simulation
        staged = source.found is None or source.staged or until > 0
        if source.found is not None and request.recorded is not None and not until:
            # What was recorded, without the decisions that a simulation would make at that time.
            snapshot = source.found
            encoded = msgspec.Raw(msgspec.json.encode(simulation.policy))
            content = encode(snapshot, encoded, simulation.seed, staged=staged)
        else:
            simulation.advance(simulation.now + until)
            snapshot = simulation.snapshot()
            content = write_snapshot(simulation, with_stories(history_of(simulation)), staged=staged)
    for gap in dict.fromkeys(gap.why for gap in snapshot.seen.gaps):
        click.echo(clean(f"not saved: {gap}"), err=True)
    target.write_bytes(redacted(content) if redact else content)
    click.echo(f"{target}: {_summed_up(snapshot)}")


def _summed_up(snapshot: Snapshot) -> str:
    counts = {"nodes": len(snapshot.nodes), "workloads": len(snapshot.workloads), "pods": len(snapshot.pods)}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
