"""`gpuconsole lint`: errors and likely mistakes in the combination of manifests."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from gpuconsole.cli.bundled import resolve
from gpuconsole.cli.linting import Gathered, LintedCluster, gather
from gpuconsole.cli.options import OpenRequest, policed
from gpuconsole.insight.linting import LintFinding, LintLevel, lint
from gpuconsole.insight.linting import schedulers as comments
from gpuconsole.insight.tables import counted
from gpuconsole.model.documents.findings import path_text
from gpuconsole.model.manifests import Finding as Unusable
from gpuconsole.model.text import clean

FORMAT = 1
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class LintLine(Struct, frozen=True, kw_only=True):
    """A finding with file and line, as it is printed."""

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
        click.echo(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())
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
        for finding in comments.lint_comments(source.text, source.name):
            yield _line(finding, source.name, finding.line, "")


def _unusable(one: Unusable) -> LintLine:
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
