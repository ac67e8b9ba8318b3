"""`gpuconsole drill`: runs scenarios and checks their expectations, or plays them with predicted victims.

`drill run` can write its results as JUnit XML: one test suite per drill, one test case per expectation. `drill play`
opens the console for one drill.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import click
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest, configured, policed, resolve
from gpuconsole.cli.sources import FindingsError, LineOf, read_drill, read_scenario, status_of
from gpuconsole.config import Config
from gpuconsole.errors import UsageError
from gpuconsole.insight.drill import DrillSession, ExpectationOutcome, ExpectationVerdict, run_drill
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import format_exactly
from gpuconsole.model.manifests import NO_MANIFEST, Severity, load
from gpuconsole.model.text import clean
from gpuconsole.services.drills import playable
from gpuconsole.sim.scenario import Scenario, build_simulation


class Suite(Struct, frozen=True, kw_only=True):
    """The results of one drill, or why its file could not be run; becomes a JUnit test suite."""

    name: str
    file: str
    results: tuple[ExpectationOutcome, ...] = ()
    problems: tuple[str, ...] = ()
    """Why the drill could not be run; empty if it ran."""
    seconds: float = 0.0
    """Wall-clock time of the run."""

    @property
    def tests(self) -> int:
        return len(self.results) + len(self.problems)

    @property
    def failures(self) -> int:
        """Number of failed expectations."""
        return sum(result.verdict is ExpectationVerdict.FAILED for result in self.results)

    @property
    def errors(self) -> int:
        """Number of expectations that could not be checked, and of problems of the file."""
        return len(self.problems) + sum(result.verdict is ExpectationVerdict.PROBLEM for result in self.results)


def as_junit(suites: Sequence[Suite]) -> bytes:
    """Format the results as a JUnit XML report. Characters that XML forbids are replaced."""
    root = ElementTree.Element("testsuites", {"name": "gpuconsole drill run", **_counts(suites)})
    for suite in suites:
        facts = {"name": _safe(suite.name), "file": _safe(suite.file), **_counts([suite])}
        element = ElementTree.SubElement(root, "testsuite", facts)
        for result in suite.results:
            _case(element, suite, result)
        for problem in suite.problems:
            case = ElementTree.SubElement(element, "testcase", _named(suite, "the file"))
            ElementTree.SubElement(case, "error", {"type": "problem", "message": _safe(problem)})
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _case(suite_element: ElementTree.Element, suite: Suite, result: ExpectationOutcome) -> None:
    name = f"step {result.step} at {format_exactly(result.at)}: {result.key}".rstrip(": ")
    case = ElementTree.SubElement(suite_element, "testcase", _named(suite, name))
    match result.verdict:
        case ExpectationVerdict.FAILED:
            failure = ElementTree.SubElement(case, "failure", {"type": "expectation", "message": _safe(result.text)})
            failure.text = _safe(f"wanted {result.wanted}\ngot    {result.got}")
        case ExpectationVerdict.PROBLEM:
            ElementTree.SubElement(case, "error", {"type": "problem", "message": _safe(result.text)})
        case ExpectationVerdict.PASSED:
            pass


def _named(suite: Suite, name: str) -> dict[str, str]:
    return {"classname": _safe(suite.name), "name": _safe(name), "file": _safe(suite.file)}


def _counts(suites: Sequence[Suite]) -> dict[str, str]:
    return {
        "tests": str(sum(suite.tests for suite in suites)),
        "failures": str(sum(suite.failures for suite in suites)),
        "errors": str(sum(suite.errors for suite in suites)),
        "time": f"{sum(suite.seconds for suite in suites):.3f}",
    }


def _safe(text: str) -> str:
    """The text without terminal control characters and characters that XML forbids."""
    return "\n".join(clean(line) for line in text.split("\n"))


@click.group(no_args_is_help=False)
def command() -> None:
    """Run scenarios and check their expectations."""


@command.command("run")
@click.argument("files", nargs=-1, required=True)
@click.option("--manifests", multiple=True, help="Files or folders with objects for every drill.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write the results as JUnit XML.")
@click.option("--seed", type=int, help="Random seed.")
@policed
def run_drills(
    files: tuple[str, ...],
    manifests: tuple[str, ...],
    junit: Path | None,
    seed: int | None,
    kueue_config: Path | None,
    feature_gates: str,
) -> int:
    """Run drills: prints one line per expectation; exits with 1 if one fails.

    FILES are scenarios, folders of scenarios, or names of bundled fixtures.
    """
    request, _ = configured(OpenRequest(seed=seed, kueue_config=kueue_config, feature_gates=feature_gates))
    if junit is not None and not junit.parent.is_dir():
        raise UsageError(f"--junit {junit}: folder {junit.parent} does not exist; create it, or choose another path")
    suites = []
    for file in _scenarios(resolve(files)):
        suite = _run(file, manifests, request)
        suites.append(suite)
        for ok, line in _lines(suite):
            click.echo(clean(f"{'ok  ' if ok else 'FAIL'} {line}"))
    if junit is not None:
        junit.write_bytes(as_junit(suites))
    failed = sum(suite.failures + suite.errors for suite in suites)
    met = sum(suite.tests for suite in suites) - failed
    click.echo(f"{counted(met, 'expectation')} met, {failed:,} failed")
    return 1 if failed else 0


@command.command("play")
@click.argument("file")
@click.option("--manifests", multiple=True, help="Files or folders with objects for the drill.")
@click.option("--seed", type=int, help="Random seed.")
@policed
def play_drill(
    file: str, manifests: tuple[str, ...], seed: int | None, kueue_config: Path | None, feature_gates: str
) -> int:
    """Play a drill in the console: predict the victims of each step, then compare.

    FILE is a scenario with steps, or the name of a bundled one.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("`gpuconsole drill play` needs a terminal; use `gpuconsole drill run` without one")
    request, settings = configured(OpenRequest(seed=seed, kueue_config=kueue_config, feature_gates=feature_gates))
    scenario = playable(read_scenario([*resolve((file,)), *manifests], request), file)
    return _show(scenario, request.seed, settings)


def _show(scenario: Scenario, seed: int | None, settings: Config) -> int:
    """Play a drill until the user quits, without a history or a worker process; returns the exit status.

    The console behind it shows the cluster before the first step, paused.
    """
    # Imported here, so that `drill run` needs no terminal toolkit.
    from gpuconsole.backends.simulated import SimulatedBackend
    from gpuconsole.cli.run import log_to, preferences
    from gpuconsole.services.console import Console
    from gpuconsole.ui.drill_console import DrillApp

    log_to(settings.log_file, settings.log_level)
    simulation = build_simulation(replace(scenario, steps=()), seed=seed)
    about = status_of(simulation, scenario.name)
    console = Console(SimulatedBackend(simulation, speed=1), about=about, prices=scenario.policy.prices)
    app = DrillApp(console, DrillSession(scenario, seed=seed), preferences(settings))
    if settings.theme and settings.theme in app.available_themes:
        app.theme = settings.theme
    console.pause()
    console.start()
    try:
        app.run()
    finally:
        console.stop()
    return app.return_code or 0


def _scenarios(files: Sequence[str]) -> Iterator[str]:
    """The scenario files; of a folder all scenarios below it, and its unreadable files, but no valid manifests.

    A file without documents, or with a broken one, may have been a scenario, so it fails on its own. Errors in a file
    that a scenario names are reported with the scenario.
    """
    for file in files:
        if not Path(file).is_dir():
            yield file
            continue
        loaded = load([file])
        named = set(map(os.path.realpath, loaded.included))
        wrong = (
            finding.file
            for finding in loaded.findings
            if finding.severity is Severity.ERROR or finding.code == NO_MANIFEST
        )
        lost = (name for name in (*wrong, *loaded.ignored) if os.path.realpath(name) not in named)
        yield from dict.fromkeys([*loaded.origins, *lost]) or [file]


def _run(file: str, manifests: Sequence[str], request: OpenRequest) -> Suite:
    """Run one drill; a file that cannot be read is a failure and does not stop the others."""
    begun, name = time.perf_counter(), Path(file).stem
    try:
        scenario, line_of = read_drill([file, *manifests], request)
        found = run_drill(scenario, seed=request.seed)
    except FindingsError as error:
        return Suite(name=name, file=file, problems=tuple(str(error).splitlines()))
    results = tuple(_placed(result, file, line_of) for result in found)
    return Suite(name=name, file=file, results=results, seconds=time.perf_counter() - begun)


def _placed(result: ExpectationOutcome, file: str, line_of: LineOf) -> ExpectationOutcome:
    """Add file and line to the result of an invalid expectation."""
    if result.item is None:
        return result
    number, key = result.step - 1, result.got.partition(":")[0]
    line = line_of(("steps", number, "expect", result.item, key))
    return replace(result, where=f"{file}:{line}: error: steps[{number}].expect[{result.item}]")


def _lines(suite: Suite) -> Iterator[tuple[bool, str]]:
    """One line for each expectation, with whether it was met."""
    yield from ((False, problem) for problem in suite.problems)
    for result in suite.results:
        yield result.ok, result.text if result.where else f"{suite.name} {result.text}"
