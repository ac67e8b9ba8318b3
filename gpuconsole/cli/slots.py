"""`gpuconsole slots`: what the idle GPUs of a cluster are good for."""

import click
import msgspec

from gpuconsole.cli.answering import Answer, Asked, answering, nothing_said
from gpuconsole.insight.basis import PLACES, undecidable
from gpuconsole.insight.fragmentation import usefulness
from gpuconsole.insight.slots import starts
from gpuconsole.ui.answers.slots import slots_lines, starts_unknown

VERSION = 2


@click.command()
@answering
def command(asked: Asked) -> Answer:
    """Show which pods and gangs would find GPUs now.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Slots are counted size by
    size, as if nothing else was placed: on the nodes, and for each queue by its quota, by the flavor's nodes and by its
    topology, with the reason why these differ. Fragments are idle GPUs that the cluster's typical pods cannot use.
    """
    snapshot = asked.standing().snapshot
    if lacking := snapshot.seen.lacking(*PLACES):
        return nothing_said("Slots", lacking, VERSION)
    undecided = undecidable(snapshot)
    answer, found = usefulness(snapshot), () if undecided else starts(snapshot)
    body = msgspec.to_builtins(answer, str_keys=True)
    body["fragments"]["percent"] = answer.fragments.percent
    body["queues"] = found if not undecided else None
    lines, unknown = slots_lines(answer, found), starts_unknown(undecided)
    return Answer(kind="Slots", body=body, lines=lines, version=VERSION, unknown=unknown)
