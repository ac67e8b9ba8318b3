"""`gpuconsole drill run`: scenarios, and whether what they expect came true."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gpuconsole.cli.bundled import resolve
from gpuconsole.cli.options import Request, configured
from gpuconsole.cli.sources import FindingsError, read_scenario
from gpuconsole.cli.tables import counted
from gpuconsole.insight.drill import DrillError, Verdict, run
from gpuconsole.model.clock import format_time
from gpuconsole.model.text import clean


@click.group()
def command() -> None:
    """Run scenarios and check what they expect."""


@command.command("run")
@click.argument("files", nargs=-1, required=True)
@click.option("--seed", type=int, help="What chance starts from.")
def run_drills(files: tuple[str, ...], seed: int | None) -> int:
    """Run drills: a line for each expectation, exit status 1 if one fails.

    FILES are scenarios, folders of scenarios, or names of bundled fixtures.
    """
    request, _ = configured(Request(seed=seed))
    failed, passed = 0, 0
    for file in _scenarios(resolve(files)):
        for ok, line in _run(file, request):
            click.echo(clean(line))
            passed, failed = passed + ok, failed + (not ok)
    click.echo(f"{counted(passed, 'expectation')} met, {failed:,} not")
    return 1 if failed else 0


def _scenarios(files: Sequence[str]) -> Iterator[str]:
    for file in files:
        path = Path(file)
        yield from map(str, sorted(path.glob("*.yaml"))) if path.is_dir() else [file]


def _run(file: str, request: Request) -> Iterator[tuple[bool, str]]:
    """Whether each expectation was met, and its line; a drill that cannot be run, or expects nothing, is a failure."""
    count = 0
    try:
        for verdict in run(read_scenario([file]), seed=request.seed):
            count += 1
            yield verdict.passed, _line(file, verdict)
    except (FindingsError, DrillError) as error:
        count += 1
        for line in str(error).splitlines():
            yield False, f"FAIL {line}"
    if not count:
        yield False, f"FAIL {file}: it expects nothing"


def _line(file: str, verdict: Verdict) -> str:
    word = "ok  " if verdict.passed else "FAIL"
    where = f"{Path(file).stem} step {verdict.step} {format_time(verdict.at)}"
    return f"{word} {where}: {verdict.expectation}" + (f"; {verdict.detail}" if verdict.detail else "")
