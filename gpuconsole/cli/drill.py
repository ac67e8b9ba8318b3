"""`gpuconsole drill run`: scenarios, and whether what they expect came true."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gpuconsole.cli.bundled import resolve
from gpuconsole.cli.options import Request, configured, policed
from gpuconsole.cli.sources import FindingsError, read_scenario
from gpuconsole.cli.tables import counted
from gpuconsole.insight.drill import run_drill
from gpuconsole.model.manifests import Severity, load
from gpuconsole.model.text import clean


@click.group(no_args_is_help=False)
def command() -> None:
    """Run scenarios and check what they expect."""


@command.command("run")
@click.argument("files", nargs=-1, required=True)
@click.option("--seed", type=int, help="What chance starts from.")
@policed
def run_drills(files: tuple[str, ...], seed: int | None, kueue_config: Path | None, feature_gates: str) -> int:
    """Run drills: a line for each expectation, exit status 1 if one fails.

    FILES are scenarios, folders of scenarios, or names of bundled fixtures.
    """
    request, _ = configured(Request(seed=seed, kueue_config=kueue_config, feature_gates=feature_gates))
    met, failed = 0, 0
    for file in _scenarios(resolve(files)):
        for ok, line in _run(file, request):
            click.echo(clean(f"{'ok  ' if ok else 'FAIL'} {line}"))
            met, failed = met + ok, failed + (not ok)
    click.echo(f"{counted(met, 'expectation')} met, {failed:,} not")
    return 1 if failed or not met else 0


def _scenarios(files: Sequence[str]) -> Iterator[str]:
    """The scenarios; of a folder those below it, but not the manifests beside them, unless these are wrong."""
    for file in files:
        if not Path(file).is_dir():
            yield file
            continue
        loaded = load([file])
        wrong = (finding.file for finding in loaded.findings if finding.severity is Severity.ERROR)
        yield from dict.fromkeys([*loaded.origins, *wrong]) or [file]


def _run(file: str, request: Request) -> Iterator[tuple[bool, str]]:
    """Whether each expectation was met, and its line; a file that cannot be read is a failure, and not the last."""
    try:
        scenario = read_scenario([file], request)
        drill = run_drill(scenario, name=Path(file).stem, seed=request.seed)
    except FindingsError as error:
        yield from ((False, line) for line in str(error).splitlines())
        return
    yield from ((result.ok, f"{drill.name} {result.text}") for result in drill.results)
