"""`gpuconsole mig`: MIG reconfiguration of nodes, with the pods that it evicts."""

from pathlib import Path

import click

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering
from gpuconsole.errors import UsageError
from gpuconsole.insight.index.device_layout import MigNodeChange, mig_changes
from gpuconsole.insight.tables import text_table
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.gpus.mig_reconfiguration import Config, read
from gpuconsole.model.text import clean


@click.command()
@answering
@click.option("--config", "name", required=True, help="Name of a mig-parted configuration, such as all-balanced.")
@click.option("--mig-parted", "file", type=click.Path(path_type=Path), help="File with mig-parted configurations.")
def command(asked: QuestionContext, name: str, file: Path | None) -> CommandAnswer:
    """Show the pods that a MIG reconfiguration would evict.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Exits with 1 if the
    configuration cannot be applied to a node.
    """
    answer = mig_changes(asked.simulation.snapshot(), name, {} if file is None else _configs(file))
    status = int(any(node.problem for node in answer))
    return CommandAnswer(kind="MigChanges", body=answer, lines=as_text(answer), status=status)


def as_text(answer: tuple[MigNodeChange, ...]) -> list[str]:
    """Format the changes of the nodes as a table."""
    rows = [
        (node.node, gpu.gpu, gpu.now, gpu.then, "yes" if gpu.reset else "no", " ".join(gpu.leavers) or "none")
        for node in answer
        for gpu in node.gpus
    ]
    lines = text_table(("NODE", "GPU", "NOW", "AFTER", "RESET", "EVICTED"), rows) if rows else ["no changes"]
    return [*lines, *(clean(f"{node.node}: {node.problem}") for node in answer if node.problem)]


def _configs(file: Path) -> dict[str, Config]:
    """Read the mig-parted configurations of a file. Raises UsageError with one line per error."""
    source = read_file(file)
    found, findings = read(source.text, str(file))
    lines = [f"{file}: {trouble.problem}; {trouble.remedy}" for trouble in source.troubles]
    lines += [f"{one.file}:{one.line}: {one.path}: {one.problem}; {one.remedy}" for one in findings]
    if lines:
        raise UsageError("\n".join(lines))
    return found
