"""A scenario's engine of placement: kube-scheduler by a few choices, or Volcano by its own configuration."""

from pathlib import Path

from gpuconsole.model.documents.sources import read_file
from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.volcano.policy import HELM_CONF, VolcanoPolicy
from gpuconsole.scheduling.volcano.reading import read_configuration
from gpuconsole.sim.scenario_form import PlacementForm

PATH = "engine.placement"


def placement_of(form: PlacementForm, folder: Path | None, problems: list[str]) -> PlacementPolicy | VolcanoPolicy:
    """Read who places pods; what is wrong is added to `problems`."""
    if form.engine == "Volcano":
        return VolcanoPolicy(conf=_conf(form.conf, folder, problems))
    if form.conf:
        problems.append(f"{PATH}.conf: only Volcano reads one; write engine: Volcano, or leave it out")
    return PlacementPolicy(score=form.score, gangs=form.gangs, preemption=form.preemption)


def _conf(said: str, folder: Path | None, problems: list[str]) -> str:
    """The text of volcano-scheduler.conf; nothing said is what Volcano's Helm chart installs."""
    if not said:
        return HELM_CONF
    text, name = said, f"{PATH}.conf"
    if "\n" not in said.strip():
        if folder is None:
            problems.append(
                f"{PATH}.conf: a file is relative to the scenario's own, and this one has none; write it out"
            )
            return HELM_CONF
        source = read_file(folder / said)
        problems.extend(f"{PATH}.conf: {said}: {trouble.problem}; {trouble.remedy}" for trouble in source.troubles)
        text, name = source.text, said
    for error in read_configuration(text, name).errors:
        where = f"{error.file}:{error.line}: {error.path}".rstrip(": ")
        problems.append(f"{PATH}.conf: {where}: {error.problem}; {error.remedy}")
    return text
