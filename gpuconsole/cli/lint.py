"""`gpuconsole lint`: errors and likely mistakes in the combination of manifests.

`gather` reads the files into clusters: one for each scenario, or else one for the manifests. The rules of
`insight.linting` check each cluster; a finding gets the file and line of the object that it is about.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct

from gpuconsole.cli.options import OpenRequest, policed, print_json, resolve
from gpuconsole.cli.policy import with_kueue
from gpuconsole.cli.sources import catalogue_for, scenario_findings, unreported, wrong_expectations
from gpuconsole.insight.linting import LintEngines, LintFacts, LintFinding, LintLevel, lint
from gpuconsole.insight.linting.facts import object_name, placed_by
from gpuconsole.insight.linting.schedulers import lint_comments
from gpuconsole.insight.tables import counted
from gpuconsole.model.commands import Submit
from gpuconsole.model.documents.findings import path_text
from gpuconsole.model.documents.sources import SourceText, read_sources
from gpuconsole.model.manifests import Finding, LoadedManifests, Severity, load
from gpuconsole.model.manifests.decoding import LoadedObject
from gpuconsole.model.objects import Object
from gpuconsole.model.text import clean
from gpuconsole.scheduling.volcano.config import ParsedVolcanoConfiguration, VolcanoPolicy
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario import Scenario, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

CONFIGURATION = "volcano-scheduler.conf"
"""Usual name of Volcano's scheduler configuration."""
OWN = ("cohort-cycle",)
"""Codes of errors of the manifests' loader that are left out, because a lint rule reports the same."""
Places = Mapping[str, LoadedObject]
"""Name of an object in findings → the loaded object, with its file and line."""


class LintedCluster(Struct, frozen=True):
    """A cluster to lint, with the file positions of its objects."""

    facts: LintFacts
    places: Places
    file: str
    """File that cluster-wide findings name: of the scheduler configuration, or of the scenario."""
    line: int = 1
    """First line of the scheduler configuration in `file`."""


class Gathered(Struct, frozen=True, kw_only=True):
    """What was read from all files: clusters to lint, and findings about objects that cannot be used."""

    clusters: tuple[LintedCluster, ...]
    unusable: tuple[Finding, ...]
    """Findings about objects that cannot be used as written."""
    sources: tuple[SourceText, ...]


def gather(files: Sequence[str], request: OpenRequest) -> Gathered:
    """Read files, folders and `-` (stdin) into clusters to lint.

    Raises SourceError, or FindingsError for an unreadable instance-type catalogue.
    """
    stdin = sys.stdin.read() if "-" in files else None
    sources = tuple(read_sources(files, stdin))
    schedulers = {source.name: read for source in sources if (read := _scheduler(source)) is not None}
    loaded = load(files, stdin=stdin)
    unusable = [
        one
        for one in loaded.findings
        if one.severity is Severity.ERROR and one.file not in schedulers and one.code not in OWN
    ]
    clusters: list[LintedCluster] = []
    for number, origin in enumerate(loaded.origins):
        try:
            scenario = _scenario(loaded, number, request)
        except ScenarioError as error:
            unusable += unreported(scenario_findings(error, origin, loaded.lines[number]), loaded)
        else:
            clusters.append(_of_scenario(loaded, number, request, scenario))
            unusable += unreported(wrong_expectations(scenario, origin, loaded.lines[number]), loaded)
    if not loaded.scenario:
        clusters += _of_manifests(loaded, schedulers, request)
    return Gathered(clusters=tuple(clusters), unusable=tuple(unusable), sources=sources)


def _scheduler(source: SourceText) -> ParsedVolcanoConfiguration | None:
    """Read Volcano's scheduler configuration from a file; None for any other file."""
    if "tiers" not in source.text and "actions" not in source.text:
        return None
    read = read_configuration(source.text, source.name)
    other = any(finding.code == "no-configuration" or not finding.path for finding in read.errors)
    return read if not other or Path(source.name).name == CONFIGURATION else None


def _of_manifests(
    loaded: LoadedManifests, schedulers: Mapping[str, ParsedVolcanoConfiguration], request: OpenRequest
) -> Iterator[LintedCluster]:
    """The cluster that manifests define; one for each scheduler configuration."""
    places = _places(loaded.entries, "")
    policy = with_kueue(SimPolicy(), request, loaded.configurations, loaded.objects)
    known = request.kueue_config is not None or bool(request.feature_gates) or bool(loaded.configurations)
    kueue = policy.kueue if known or (policy.kueue is not None and policy.kueue.transformations) else None
    if not schedulers:
        yield LintedCluster(LintFacts(loaded.objects, LintEngines(kueue=kueue)), places, "")
    for name, read in schedulers.items():
        yield LintedCluster(
            LintFacts(loaded.objects, LintEngines(kueue=kueue, volcano=read, volcano_name=name)), places, name
        )


def _scenario(loaded: LoadedManifests, number: int, request: OpenRequest) -> Scenario:
    """Raises ScenarioError."""
    document, origin = loaded.scenario[number], loaded.origins[number]
    return load_scenario(
        [document],
        origin,
        objects=loaded.objects,
        folder=Path(origin).parent if Path(origin).is_file() else None,
        catalogue=catalogue_for(request, [document]),
    )


def _of_scenario(loaded: LoadedManifests, number: int, request: OpenRequest, scenario: Scenario) -> LintedCluster:
    """The cluster of a scenario, with everything that its steps create."""
    origin = loaded.origins[number]
    facts = LintFacts(_objects(scenario), _engines(scenario.policy, request, origin))
    places = {**_places(loaded.entries, ""), **_places(loaded.entries, origin)}
    return LintedCluster(facts, places, origin, loaded.lines[number](("engine", "placement", "conf")))


def _objects(scenario: Scenario) -> list[Object]:
    created = (
        obj
        for step in scenario.steps
        for command in step.commands
        if isinstance(command, Submit)
        for obj in command.objects
    )
    return [*scenario.objects, *created]


def _engines(policy: SimPolicy, request: OpenRequest, origin: str) -> LintEngines:
    volcano = read_configuration(policy.placement.conf) if isinstance(policy.placement, VolcanoPolicy) else None
    return LintEngines(
        placement=placed_by(policy.placement),
        kueue=policy.kueue if policy.kueue is None else with_kueue(policy, request).kueue,
        unqueued=policy.kueue is None,
        volcano=volcano,
        volcano_name=origin,
        own_file=False,
        capacity=policy.capacity,
    )


def _places(entries: Sequence[LoadedObject], scope: str) -> dict[str, LoadedObject]:
    """The objects of a scenario file (`scope`), or of no scenario (empty), by name."""
    return {object_name(entry.obj): entry for entry in entries if entry.scope == scope}


FORMAT = 1
"""Version of the JSON document."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class LintLine(Struct, frozen=True, kw_only=True):
    """A finding as it is printed, with file and line."""

    code: str
    level: LintLevel
    file: str
    line: int
    """0 if unknown."""
    object: str
    field: str
    problem: str
    evidence: Mapping[str, str | int] = {}
    fix: str

    @property
    def text(self) -> str:
        """The finding as one line, in the format of compilers."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = " ".join(part for part in (self.object, self.field) if part)
        shown = ", ".join(f"{name}: {value}" for name, value in self.evidence.items())
        parts = [place, self.level.value, *([subject] if subject else []), self.problem]
        return clean(f"{': '.join(parts)}{f' ({shown})' if shown else ''}; {self.fix} [{self.code}]")


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--catalogue", type=_FILE, help="Instance-type catalogue (default: built in).")
@policed
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    files: tuple[str, ...], catalogue: Path | None, kueue_config: Path | None, feature_gates: str, output: str
) -> int:
    """Lint manifests: find errors and likely mistakes.

    FILES are manifests, scenarios, a volcano-scheduler.conf, folders, or names of bundled fixtures; - is stdin. Exits
    with 1 if there are errors.
    """
    request = OpenRequest(catalogue=catalogue, kueue_config=kueue_config, feature_gates=feature_gates)
    # Scenarios that share manifests have the same findings about them.
    lines = list({line.text: line for line in _lines(gather(resolve(files), request))}.values())
    counts = Counter(line.level for line in lines)
    if output == "json":
        whole = {"version": FORMAT, "findings": lines, **{f"{level}s": counts[level] for level in LintLevel}}
        print_json(whole)
    else:
        for line in lines:
            click.echo(line.text)
        click.echo(", ".join(counted(counts[level], level) for level in LintLevel))
    return 1 if counts[LintLevel.ERROR] else 0


def _lines(gathered: Gathered) -> Iterator[LintLine]:
    for one in gathered.unusable:
        yield _unusable(one)
    for cluster in gathered.clusters:
        for finding in lint(cluster.facts):
            yield _placed(finding, cluster)
    for source in gathered.sources:
        for finding in lint_comments(source.text, source.name):
            yield _line(finding, source.name, finding.line, "")


def _unusable(one: Finding) -> LintLine:
    return LintLine(
        code=one.code,
        level=LintLevel.ERROR,
        file=one.file,
        line=one.line,
        object=one.object,
        field=one.path,
        problem=one.problem,
        fix=one.remedy,
    )


def _placed(finding: LintFinding, cluster: LintedCluster) -> LintLine:
    """Add file and line of the object that a finding is about."""
    entry = cluster.places.get(finding.object)
    if entry is None:
        about = "" if finding.object == cluster.file else finding.object
        return _line(finding, cluster.file, finding.line or (0 if about else cluster.line), about)
    place = entry.place
    return _line(finding, place.report.file, place.report.line_of(place.at(*finding.path)), finding.object)


def _line(finding: LintFinding, file: str, line: int, about: str) -> LintLine:
    return LintLine(
        code=finding.code,
        level=finding.level,
        file=file,
        line=line,
        object=about,
        field=path_text(finding.path),
        problem=finding.problem,
        evidence=finding.evidence,
        fix=finding.fix,
    )
