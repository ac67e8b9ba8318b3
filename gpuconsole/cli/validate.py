"""`gpuconsole validate`: all problems of manifests, with file, line and remedy."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

import click
import msgspec

from gpuconsole.cli.options import as_line, print_json, resolve
from gpuconsole.insight.tables import counted
from gpuconsole.model.manifests import Finding, LoadedManifests, Severity, load
from gpuconsole.model.text import clean


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Report what the API server would reject as an error.")
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Kueue's feature gates.")
@click.option("--over", multiple=True, help="Existing objects that FILES update. May be repeated.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="GLOB",
    help="Skip files whose path, name or folder matches, such as 'charts/*'. May be repeated.",
)
@click.option("--defaults", is_flag=True, help="Print Kueue objects with defaults as stored; findings go to stderr.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    files: tuple[str, ...],
    strict: bool,
    feature_gates: str,
    over: tuple[str, ...],
    ignore: tuple[str, ...],
    defaults: bool,
    output: str,
) -> int:
    """Check manifests.

    FILES are YAML, JSON, text with YAML blocks, folders, or names of bundled fixtures; - is stdin. Files in a folder
    that are not Kubernetes manifests (Helm values and templates, Kustomize patches) are ignored and listed in one line.
    The exit status is 1 if there are errors.
    """
    loaded = load(
        resolve(files),
        strict=strict,
        stdin=sys.stdin.read() if "-" in files else None,
        gates=_gates(feature_gates),
        over=resolve(over),
        keep_stored=defaults,
        ignore=ignore,
    )
    if loaded.scenario:
        # Imported only here: few manifests are scenarios, and the simulator doubles the import time.
        from gpuconsole.cli.sources import with_scenarios

        loaded = with_scenarios(loaded)
    if loaded.configurations:
        from gpuconsole.cli.policy import with_configurations

        loaded = with_configurations(loaded)
    if defaults:
        _print_stored(loaded, output)
    elif output == "json":
        print_json(_as_json(loaded))
    else:
        for line in [*map(as_line, loaded.findings), *_summary(loaded)]:
            click.echo(line)
    return 1 if _count(loaded.findings, Severity.ERROR) else 0


def _gates(text: str) -> Mapping[str, bool]:
    if not text:
        return {}
    # Imported only here: the engine is needed only for feature gates.
    from gpuconsole.cli.policy import gates_of

    return gates_of(text)


def _print_stored(loaded: LoadedManifests, output: str) -> None:
    """Print the objects as a JSON List or YAML documents; findings go to stderr."""
    for line in map(as_line, loaded.findings):
        click.echo(line, err=True)
    if output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": loaded.stored}
        print_json(whole)
    else:
        click.echo("---\n".join(msgspec.yaml.encode(obj).decode() for obj in loaded.stored), nl=False)


def _summary(loaded: LoadedManifests) -> list[str]:
    kinds = Counter(type(obj).__name__ for obj in loaded.objects)
    if loaded.configurations:
        kinds["Configuration"] = len(loaded.configurations)
    lines = [_named("read", kinds) if kinds else "read: no supported objects"]
    lines += [f"scenario: {clean(origin)}" for origin in loaded.origins]
    if loaded.known_unsimulated:
        lines.append(_named("known, not simulated", loaded.known_unsimulated))
    if loaded.unknown:
        lines.append(_named("unknown", loaded.unknown))
    found = [counted(_count(loaded.findings, severity), severity) for severity in Severity]
    return [*lines, ", ".join(found)]


def _named(word: str, kinds: Mapping[str, int]) -> str:
    return clean(f"{word}: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))


def _count(findings: Iterable[Finding], severity: Severity) -> int:
    return sum(finding.severity == severity for finding in findings)


def _as_json(loaded: LoadedManifests) -> dict[str, object]:
    return {
        "findings": loaded.findings,
        "objects": dict(sorted(Counter(type(obj).__name__ for obj in loaded.objects).items())),
        "known_unsimulated": dict(loaded.known_unsimulated),
        "unknown": dict(loaded.unknown),
        "errors": _count(loaded.findings, Severity.ERROR),
        "warnings": _count(loaded.findings, Severity.WARNING),
    }
