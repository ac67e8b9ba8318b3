"""`gpuconsole slots`: what the idle GPUs of a cluster are good for."""

from collections.abc import Iterable

import click
import msgspec

from gpuconsole.cli.answering import Answer, Asked, answering
from gpuconsole.cli.tables import counted, table
from gpuconsole.insight.fragmentation import SIZES, Fragments, Slots, Usefulness, usefulness


@click.command()
@answering
def command(asked: Asked) -> Answer:
    """Show which pods and gangs would find GPUs now.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Slots are counted size by
    size, as if nothing else was placed; fragments are idle GPUs that the cluster's typical pods cannot use.
    """
    answer = usefulness(asked.simulation.snapshot())
    body = msgspec.to_builtins(answer, str_keys=True)
    body["fragments"]["percent"] = answer.fragments.percent
    return Answer(kind="Slots", body=body, lines=as_text(answer))


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
