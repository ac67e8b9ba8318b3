"""Validation of scenarios: their objects and their problems, as findings with places."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gpuconsole.cli.options import as_line
from gpuconsole.insight.expectations import ExpectError, read_expectation
from gpuconsole.model.documents.findings import Path as FieldPath
from gpuconsole.model.manifests import Finding, LoadedManifests, Severity
from gpuconsole.sim.scenario import Scenario, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

_PLACE = re.compile(r"([A-Za-z][\w.\[\]]*): (.+)")
_UNKNOWN = re.compile(r"(?:unknown key )?'([^']+)'")
LineOf = Callable[[FieldPath], int]
"""Field of a document → the line on which it stands."""
_KEY = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
FILES = "files"


def with_scenarios(loaded: LoadedManifests) -> LoadedManifests:
    """The loaded manifests, with the objects of their scenarios, or findings about these."""
    objects, findings = list(loaded.objects), list(loaded.findings)
    for document, origin, line_of in zip(loaded.scenario, loaded.origins, loaded.lines, strict=True):
        try:
            scenario = load_scenario([document], origin, folder=Path(origin).parent)
        except ScenarioError as error:
            problems = scenario_findings(error, origin, line_of)
        else:
            objects += scenario.objects
            problems = wrong_expectations(scenario, origin, line_of)
        findings += unreported(problems, loaded)
    return replace(loaded, objects=tuple(objects), findings=tuple(findings))


def unreported(problems: Iterable[Finding], loaded: LoadedManifests) -> list[Finding]:
    """The problems of a scenario without those that were already found when its files were loaded."""
    known = {(finding.file, finding.line, finding.path) for finding in loaded.findings}
    return [
        problem
        for problem in problems
        if (problem.path != FILES or not loaded.has_errors) and (problem.file, problem.line, problem.path) not in known
    ]


def placed(error: ScenarioError, origin: str, lines: Sequence[LineOf]) -> str:
    """The problems of a single scenario or list of changes, each with its line."""
    if len(lines) != 1:
        return str(error)
    return "\n".join(map(as_line, scenario_findings(error, origin, lines[0])))


def scenario_findings(error: ScenarioError, origin: str, line_of: LineOf) -> list[Finding]:
    """The problems of a scenario, each with its line."""
    texts = (text.removeprefix(f"{origin}: ") for text in str(error).splitlines())
    return sorted((_finding(text, origin, line_of) for text in texts), key=lambda finding: finding.line)


def wrong_expectations(scenario: Scenario, origin: str, line_of: LineOf) -> list[Finding]:
    """Expectations of a scenario that can never be checked, each with its line. Nothing is simulated."""
    return [_finding(text, origin, line_of) for text in _wrong_expectations([step.expect for step in scenario.steps])]


def misread_expectations(document: Mapping[str, Any]) -> Iterator[str]:
    """Expectations of an unparsed scenario that can never be checked."""
    steps = document.get("steps")
    found = [step.get("expect") if isinstance(step, dict) else () for step in steps] if isinstance(steps, list) else []
    yield from _wrong_expectations([expect if isinstance(expect, list) else () for expect in found])


def _wrong_expectations(steps: Iterable[Iterable[Any]]) -> Iterator[str]:
    for number, expect in enumerate(steps):
        for position, item in enumerate(expect):
            try:
                read_expectation(item)
            except ExpectError as error:
                yield f"steps[{number}].expect[{position}]: {error}"


def _finding(text: str, origin: str, line_of: LineOf) -> Finding:
    """A finding from `path: problem; remedy`, with its line; for an unknown key, the line of that key."""
    placed = _PLACE.fullmatch(text)
    path, said = (placed[1], placed[2]) if placed else ("", text)
    unknown = _UNKNOWN.match(said)
    problem, _, remedy = said.partition("; ")
    return Finding(
        severity=Severity.ERROR,
        file=origin,
        line=line_of((*_keys(path), *([unknown[1]] if unknown else []))),
        document=1,
        path=path,
        object="",
        problem=problem,
        remedy=remedy or "see docs/reference/scenarios.md and the bundled scenarios",
        code="scenario",
    )


def _keys(path: str) -> FieldPath:
    return tuple(int(number) if number else name for number, name in _KEY.findall(path))
