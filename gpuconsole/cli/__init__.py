"""The command line: each command is a module of this package, and is imported only when it is used."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TextIO

import click

from gpuconsole import __version__
from gpuconsole.errors import ConsoleError
from gpuconsole.garbage import collect_seldom, uncollected
from gpuconsole.model.text import clean

COMMANDS = {
    "run": "Open the console.",
    "validate": "Check manifests.",
    "lint": "Find errors and likely mistakes across manifests.",
    "simulate": "Run a headless simulation.",
    "drill": "Run scenarios and check their expectations.",
    "forecast": "Forecast Kueue's next decisions, and verify the forecast.",
    "shadow": "Check each decision of a real Kueue against the engine.",
    "preemptions": "Show preemptions: victim, preemptor, rule, lost work.",
    "whatif": "Compare changes or other schedulers with the baseline in a fork.",
    "plan": "Find the cheapest change that admits workloads.",
    "why": "Explain why a workload is pending and what would admit it.",
    "ledger": "Show borrowed GPUs, and what a reclaim would evict.",
    "eta": "Show a workload's queue position and estimated start.",
    "shares": "Show fair shares and the admission order.",
    "alerts": "List the alerts of your rules.",
    "antipatterns": "Find anti-patterns, such as idle GPUs and preemption loops.",
    "risk": "Show the preemption risk of running workloads.",
    "cost": "Show the cost of GPUs over time.",
    "slots": "Show how many pods and gangs fit now.",
    "mig": "Show which pods a MIG reconfiguration evicts.",
    "snapshot": "Save a cluster to a file.",
    "at": "Answer a question about a recorded cluster at an earlier time.",
    "record": "Record the history of a cluster without a screen.",
    "history": "Inspect, prune, copy and export recorded history.",
    "metrics": "Serve Prometheus metrics of a cluster.",
    "web": "Serve the console to browsers.",
    "report": "Report on a week of a recorded cluster.",
    "keys": "List all keys.",
}
"""Command, also the name of its module → its summary in the help, which therefore imports no command."""
INTERRUPTED = 130
"""Exit status after Ctrl-C."""
_OWN = ("-h", "--help", "--version")


class Commands(click.Group):
    """A click group that imports a command when it is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `gpuconsole --live` is `gpuconsole run --live`: options that are not the program's own are the console's.
        if args and args[0].startswith("-") and args[0] not in _OWN:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _until_reader_leaves():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _until_reader_leaves():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # Imports create no garbage, but would trigger dozens of collections.
        with uncollected():
            command: click.Command = import_module(f"gpuconsole.cli.{cmd_name}").command
        collect_seldom()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from gpuconsole.config import Config, load

        try:
            config = load({}, os.environ)
        except ConsoleError as error:
            # The help must work with a broken configuration, too.
            _complain(str(error))
            config = Config()
        with formatter.section("Files"):
            formatter.write_dl([("log", str(config.log_file)), ("history", str(config.history_file))])


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuconsole", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Watch and operate the queues of a GPU cluster, live or simulated.

    Without a command, the console opens on the embedded simulator with the default fixture.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(cli.get_command(ctx, "run"))  # type: ignore[arg-type]


def main() -> None:
    """Run the program and exit; errors are printed on stderr.

    Exit status: 1 = the answer reports problems, or files have errors; 2 = there is no answer (usage error, cluster
    unreachable or forbidden, disk full); 130 = interrupted.
    """
    status = _status()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _print_no_more()
    sys.exit(status)


@contextmanager
def _until_reader_leaves() -> Iterator[None]:
    """End with status 0 when the reader of a pipe closes it, as `head` does. Click would end with 1."""
    try:
        yield
    except BrokenPipeError:
        # Some other pipe may have broken, too: of the worker process, of kubectl.
        if not any(map(_has_no_reader, (sys.stdout, sys.stderr))):
            raise
        _print_no_more()
        raise click.exceptions.Exit(0) from None


def _has_no_reader(stream: TextIO) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        # A system without poll, or a stream that is not a file.
        return True


def _print_no_more() -> None:
    """Discard buffered output, or Python would report the closed pipe at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if _has_no_reader(stream):
            with suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _status() -> int:
    try:
        return int(cli.main(prog_name="gpuconsole", standalone_mode=False) or 0)
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except ConsoleError as error:
        _complain(str(error))
        return error.status
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except OSError as error:
        _complain(str(error))
        return ConsoleError.status


def _complain(text: str) -> None:
    try:
        for line in text.splitlines():
            click.echo(f"gpuconsole: {clean(line)}", err=True)
    except BrokenPipeError:
        _print_no_more()
