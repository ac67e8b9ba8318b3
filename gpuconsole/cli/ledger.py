"""`gpuconsole ledger`: borrowed and lent GPUs, the effect of a reclaim, and starved queues."""

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, nothing_said
from gpuconsole.errors import UsageError
from gpuconsole.insight.data_gaps import QUOTA
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.model.clock import format_time
from gpuconsole.ui.answers.cluster_reports import ledger_lines, without_kueue

VERSION = 3
"""Version of the answer in the JSON document."""


@click.command()
@answering
def command(asked: QuestionContext) -> CommandAnswer:
    """Show borrowed GPUs with lender and borrower, what a reclaim would evict, and starved queues.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture. The victims of a reclaim are those that
    Kueue's algorithm finds if the lender requests all of its unused nominal quota at once, with the highest priority
    in its queue.
    """
    snapshot, session, policy = asked.standing()
    if session is None:
        raise UsageError(without_kueue(snapshot))
    if lacking := asked.seen.missing_reasons(*QUOTA):
        return nothing_said("Ledger", lacking, VERSION)
    answer = ledger(snapshot, session, policy.prices)
    body = msgspec.to_builtins(answer)
    for loan in body["loans"]:
        loan["since"] = format_time(loan["since"])
    return CommandAnswer(kind="Ledger", body=body, lines=ledger_lines(answer, snapshot.time), version=VERSION)
