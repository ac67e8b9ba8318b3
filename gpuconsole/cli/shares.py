"""`gpuconsole shares`: fair shares with their calculation, and the admission order."""

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, nothing_said
from gpuconsole.insight.data_gaps import TURNS
from gpuconsole.insight.index.engine_queues import engine_shares
from gpuconsole.insight.sharing.fair_shares import shares
from gpuconsole.model.clock import format_time
from gpuconsole.ui.answers.cluster_reports import shares_lines

VERSION = 2
"""Version of the answer in the JSON document."""


@click.command()
@answering
def command(asked: QuestionContext) -> CommandAnswer:
    """Show the fair share of each queue and cohort, and the admission order.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture. Kueue's shares are also shown if fair
    sharing is off; queues of Volcano and KAI are shown with their deserved amounts.
    """
    snapshot, session, _ = asked.standing()
    if lacking := asked.seen.missing_reasons(*TURNS):
        return nothing_said("Shares", lacking, VERSION)
    found = shares(session, snapshot.time) if session is not None else None
    queues = engine_shares(snapshot)
    body = {"kueue": msgspec.to_builtins(found), "queues": queues}
    for turn in body["kueue"]["turns"] if found is not None else ():
        turn["queued"] = format_time(turn["queued"])
    lines = shares_lines(found, queues, snapshot.time)
    return CommandAnswer(kind="Shares", body=body, lines=lines, version=VERSION)
