"""`gpuconsole mig`: what it takes to divide GPUs anew."""

from pathlib import Path

import click
import msgspec

from gpuconsole.cli.options import Request, clustered, configured
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import open_simulation
from gpuconsole.cli.tables import table
from gpuconsole.errors import UsageError
from gpuconsole.insight.mig_changes import NodeChange, mig_changes
from gpuconsole.model.clock import Span
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.gpus import parted
from gpuconsole.model.text import clean


@click.command()
@clustered
@click.option("--config", "name", required=True, help="A configuration of mig-parted, such as all-balanced.")
@click.option("--mig-parted", "file", type=click.Path(path_type=Path), help="A file of configurations of one's own.")
@click.option("--until", type=Duration(), default="0s", show_default=True, help="How much virtual time to run first.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(request: Request, name: str, file: Path | None, until: Span, output: str) -> int:
    """Show which pods would have to leave if nodes' GPUs were divided by a MIG configuration.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Exits with 1 if a node
    cannot be divided so.
    """
    configs = {} if file is None else _configs(file)
    request, _ = configured(request)
    opened = open_simulation(request)
    simulation = opened.simulation
    simulation.advance(simulation.now + until)
    for notice in opened.notices:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    answer = mig_changes(simulation.snapshot(), name, configs)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        for line in as_text(answer):
            click.echo(line)
    return int(any(node.problem for node in answer))


def as_text(answer: tuple[NodeChange, ...]) -> list[str]:
    """The answer for people."""
    rows = [
        (node.node, gpu.gpu, gpu.now, gpu.then, "yes" if gpu.reset else "no", " ".join(gpu.leavers) or "nobody")
        for node in answer
        for gpu in node.gpus
    ]
    lines = table(("NODE", "GPU", "NOW", "THEN", "RESET", "HAS TO LEAVE"), rows) if rows else ["nothing changes"]
    return [*lines, *(clean(f"{node.node}: {node.problem}") for node in answer if node.problem)]


def _configs(file: Path) -> dict[str, parted.Config]:
    """The configurations of a file. Raises UsageError that names every wrong line."""
    source = read_file(file)
    found, findings = parted.read(source.text, str(file))
    lines = [f"{file}: {trouble.problem}; {trouble.remedy}" for trouble in source.troubles]
    lines += [f"{one.file}:{one.line}: {one.path}: {one.problem}; {one.remedy}" for one in findings]
    if lines:
        raise UsageError("\n".join(lines))
    return found
