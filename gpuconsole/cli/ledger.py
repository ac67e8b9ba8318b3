"""`gpuconsole ledger`: who lends GPUs to whom, and what happens if a lender wants them back."""

import click
import msgspec

from gpuconsole.cli.answering import Answer, Asked, answering, nothing_said
from gpuconsole.errors import UsageError
from gpuconsole.insight.basis import QUOTA
from gpuconsole.insight.ledger import ledger
from gpuconsole.model.clock import format_time
from gpuconsole.ui.answers.ledger import ledger_lines, without_kueue

VERSION = 3


@click.command()
@answering
def command(asked: Asked) -> Answer:
    """Show who lends GPUs to whom since when, who would lose what if a lender returned, and who starves meanwhile.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture. Whom a lender would evict is what the
    engine finds when it asks for all that it owns and does not use, in one piece, with the highest priority that its
    queue has now.
    """
    snapshot, session, policy = asked.standing()
    if session is None:
        raise UsageError(without_kueue(snapshot))
    if lacking := asked.seen.lacking(*QUOTA):
        return nothing_said("Ledger", lacking, VERSION)
    answer = ledger(snapshot, session, policy.prices)
    body = msgspec.to_builtins(answer)
    for loan in body["loans"]:
        loan["since"] = format_time(loan["since"])
    return Answer(kind="Ledger", body=body, lines=ledger_lines(answer, snapshot.time), version=VERSION)
