"""`gpuconsole mig`: what it takes to divide GPUs anew."""

from pathlib import Path

import click

from gpuconsole.cli.answering import Answer, Asked, answering
from gpuconsole.errors import UsageError
from gpuconsole.insight.mig_changes import NodeChange, mig_changes
from gpuconsole.insight.tables import table
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.gpus import parted
from gpuconsole.model.text import clean


@click.command()
@answering
@click.option("--config", "name", required=True, help="A configuration of mig-parted, such as all-balanced.")
@click.option("--mig-parted", "file", type=click.Path(path_type=Path), help="A file of configurations of one's own.")
def command(asked: Asked, name: str, file: Path | None) -> Answer:
    """Show which pods would have to leave if nodes' GPUs were divided by a MIG configuration.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Exits with 1 if a node
    cannot be divided so.
    """
    answer = mig_changes(asked.simulation.snapshot(), name, {} if file is None else _configs(file))
    status = int(any(node.problem for node in answer))
    return Answer(kind="MigChanges", body=answer, lines=as_text(answer), status=status)


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
