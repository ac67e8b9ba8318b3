"""`gpuconsole at TIME COMMAND`: answers a question about a recorded cluster as it was at an earlier time."""

import re
from pathlib import Path
from typing import Any

import click

from gpuconsole.cli.options import OpenRequest, configured, recording_numbered
from gpuconsole.errors import UsageError
from gpuconsole.model.clock import Time
from gpuconsole.services.time_travel import parse_moment, recorded_cluster, recording_at
from gpuconsole.store import queries
from gpuconsole.store.queries import Recording
from gpuconsole.store.schema import earlier_sessions

QUESTIONS = (
    "why",
    "eta",
    "ledger",
    "shares",
    "risk",
    "plan",
    "whatif",
    "slots",
    "mig",
    "antipatterns",
    "cost",
    "snapshot",
)
"""Commands that answer questions about a cluster at one time."""
_BEFORE_END = re.compile(r"-\d\S*")
_END = "end"


class QuestionAtTime(click.Command):
    """A click command whose first argument may be a negative duration, and that passes on options it does not know."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for place, text in enumerate(args):
            if _BEFORE_END.fullmatch(text):
                # Click would take it for an option.
                args = [*args[:place], f"{_END}{text}", *args[place + 1 :]]
                break
            if text in QUESTIONS:
                break
        return super().parse_args(ctx, args)


@click.command(cls=QuestionAtTime, context_settings={"ignore_unknown_options": True})
@click.argument("time")
@click.argument("question", metavar="COMMAND")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The recorded history (default: that of the console).",
)
@click.option("--recording", type=int, help="Number of the recording, if the history has several that cover the time.")
@click.pass_context
def command(
    ctx: click.Context,
    time: str,
    question: str,
    arguments: tuple[str, ...],
    history: Path | None,
    recording: int | None,
) -> Any:
    """Answer a question about a recorded cluster as it was at TIME.

    TIME is UTC, such as 2026-01-05T14:00Z, or -2h for two hours before the end of the recording. COMMAND is why, eta,
    ledger, shares, risk, plan, whatif, slots, mig, antipatterns, cost or snapshot, with its arguments and options, but
    without FILES. Whatif, plan and risk simulate from that time on.
    """
    from gpuconsole.cli import cli

    answering = cli.get_command(ctx, question) if question in QUESTIONS else None
    if answering is None:
        raise UsageError(f"{question} has no answer about an earlier time; use one of {', '.join(QUESTIONS)}")
    file = history or configured(OpenRequest())[1].newest_history_file
    if not file.exists():
        raise UsageError(f"{file}: nothing is recorded yet; the console records its clusters while it runs")
    with earlier_sessions(file) as db:
        known = queries.recordings(db)
        if recording is not None:
            known = [recording_numbered(known, recording)]
        at, chosen = _meant(time, known)
        cluster = recorded_cluster(db, chosen, at)
    asked = answering.make_context(f"{ctx.command_path} TIME {question}", list(arguments), parent=ctx, obj=cluster)
    with asked:
        return answering.invoke(asked)


def _meant(text: str, recordings: list[Recording]) -> tuple[Time, Recording]:
    """Return the time that was typed, and the newest recording that covers it. Raises UsageError, HistoryError."""
    newest = recordings[-1] if recordings else None
    typed = text.removeprefix(_END)
    try:
        time = parse_moment(typed, newest.last if newest is not None else 0)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return time, newest if typed.startswith("-") and newest is not None else recording_at(recordings, time)
