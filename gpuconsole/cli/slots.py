"""`gpuconsole slots`: what the idle GPUs of a cluster are good for."""

from collections.abc import Iterable

import click
import msgspec

from gpuconsole.cli.options import Request, clustered, configured
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import open_simulation
from gpuconsole.cli.tables import counted, table
from gpuconsole.insight.fragmentation import SIZES, Fragments, Slots, Usefulness, usefulness
from gpuconsole.model.clock import Span, format_time
from gpuconsole.model.text import clean


@click.command()
@clustered
@click.option("--until", type=Duration(), default="0s", show_default=True, help="How much virtual time to run first.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(request: Request, until: Span, output: str) -> int:
    """Show which pods and gangs would find GPUs now.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Slots are counted size by
    size, as if nothing else was placed; fragments are idle GPUs that the cluster's typical pods cannot use.
    """
    request, _ = configured(request)
    opened = open_simulation(request)
    simulation = opened.simulation
    simulation.advance(simulation.now + until)
    for notice in opened.notices:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    answer = usefulness(simulation.snapshot())
    if output == "json":
        document = {"time": format_time(simulation.now), **msgspec.to_builtins(answer, str_keys=True)}
        document["fragments"]["percent"] = answer.fragments.percent
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        for line in as_text(answer):
            click.echo(line)
    return 0


def as_text(answer: Usefulness) -> list[str]:
    """The answer for people."""
    head = ("GPUS", "IDLE", "LARGEST POD", "LARGEST GANG", *map(str, SIZES))
    lines = table(("FLAVOR", "NODES", *head), [_row(row) for row in (*answer.flavors, answer.cluster)])
    if answer.domains:
        domains = [(row.level, *_row(row)) for row in answer.domains]
        lines += ["", *table(("LEVEL", "DOMAIN", "NODES", *head), domains)]
    return [*lines, "", *_fragments(answer.fragments)]


def _row(row: Slots) -> tuple[object, ...]:
    gang = f"{row.largest_gang.pods} × {row.largest_gang.gpus}" if row.largest_gang is not None else "–"
    return (row.name, row.nodes, row.gpus, row.idle, row.largest_pod, gang, *row.slots.values())


def _fragments(fragments: Fragments) -> Iterable[str]:
    if not fragments.typical:
        yield "no pods, so nothing is typical: fragmentation is not known"
        return
    yield from table(
        ("TYPICAL POD", "CPU", "MODEL", "PERCENT", "NODES THAT TAKE IT"),
        [
            (
                counted(pod.gpus, "GPU") if pod.gpus else "no GPU",
                pod.cpu / 1000,
                pod.model or "any",
                pod.percent,
                pod.nodes,
            )
            for pod in fragments.typical
        ],
    )
    yield ""
    yield f"{fragments.fragment:.1f} of {fragments.idle} idle GPUs are fragments ({fragments.percent:.0f} %)"
