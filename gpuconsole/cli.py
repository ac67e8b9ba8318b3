"""The commands. The only place that builds the object graph; what is heavy is imported inside the command that needs it."""

import json
import sys

import click

from gpuconsole import __version__
from gpuconsole.errors import ConsoleError, UsageError


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuconsole", message="%(prog)s %(version)s")
def cli() -> None:
    """Watch and operate the queues of a GPU cluster, live or simulated."""


@cli.command()
@click.option("--cycles", type=click.File("r"), metavar="FILE", help="Bare scenarios, one a line; - is stdin.")
def simulate(cycles: click.utils.LazyFile | None) -> None:
    """Run a cluster without a screen."""
    if cycles is None:
        raise UsageError("simulate needs --cycles for now")
    from gpuconsole.sim.bare import run

    for line in cycles:
        if line.strip():
            sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
            sys.stdout.flush()


def main() -> None:
    """The process: errors become one line on stderr and an exit status."""
    try:
        cli.main(prog_name="gpuconsole")
    except ConsoleError as error:
        click.echo(f"gpuconsole: {error}", err=True)
        sys.exit(error.status)
