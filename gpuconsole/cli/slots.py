"""`gpuconsole slots`: schedulable capacity, the pods and gangs that fit on idle GPUs."""

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, nothing_said
from gpuconsole.insight.data_gaps import PLACES, IdleBound, bound_of_idle, missing_for_admission
from gpuconsole.insight.sharing.slots import slots
from gpuconsole.ui.answers.cluster_reports import slots_lines, starts_unknown

VERSION = 4
"""Since 4 every row has a unit, and the largest gang its limits; `divided` is gone, since all units are counted."""


@click.command()
@answering
def command(asked: QuestionContext) -> CommandAnswer:
    """Show schedulable capacity: the pods and gangs that fit now.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Each size is counted on its
    own: on all nodes, and for each queue by its quota, by the flavor's nodes and by its topology, with the reason if
    these differ. Fragments are idle GPUs that the cluster's typical pods cannot use.
    """
    snapshot = asked.standing().snapshot
    lacking = snapshot.seen.missing_reasons(*PLACES)
    bound = bound_of_idle(snapshot)
    if bound is None:
        return nothing_said("Slots", lacking, VERSION)
    undecided = missing_for_admission(snapshot)
    answer, found = slots(snapshot, bound)
    body = msgspec.to_builtins(answer, str_keys=True)
    body["bound"] = bound
    if bound is IdleBound.EXACT:
        body["fragments"]["percent"] = answer.fragments.percent
    else:
        body["fragments"] = None
    body["queues"] = found if not undecided else None
    lines, unknown = slots_lines(answer, found, bound), (*lacking, *starts_unknown(undecided))
    return CommandAnswer(kind="Slots", body=body, lines=lines, version=VERSION, unknown=unknown)
