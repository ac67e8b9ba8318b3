"""Reads `engine.placement` of a scenario: the placement engine and its configuration."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuconsole.model.clock import parse_span
from gpuconsole.model.documents.findings import Finding
from gpuconsole.model.documents.sources import read_file
from gpuconsole.scheduling.kai.config import BadArgument, KaiPolicy, UsagePolicy, parse_configuration
from gpuconsole.scheduling.kube import configuration as kube
from gpuconsole.scheduling.kube.profile import PlacementPolicy, SchedulerProfile
from gpuconsole.scheduling.volcano.config import GATES, HELM_CONF, VolcanoPolicy
from gpuconsole.scheduling.volcano.plugins.deviceshare import read_groups
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.sim.scenario_form import PlacementForm, UsageForm

PLACEMENT_PATH = "engine.placement"


def placement_of(
    form: PlacementForm, folder: Path | None, problems: list[str]
) -> PlacementPolicy | VolcanoPolicy | KaiPolicy:
    """Read the placement settings; errors are added to `problems`."""
    if form.usage is not None and form.engine != "KAI":
        problems.append(f"{PLACEMENT_PATH}.usage: only KAI looks at past use; write engine: KAI, or leave it out")
    if form.engine == "Volcano":
        return VolcanoPolicy(
            conf=_volcano_conf(form.conf, folder, problems),
            devices=_volcano_devices(form.devices, folder, problems),
            feature_gates=_gates(form.feature_gates, problems),
        )
    if form.devices:
        problems.append(f"{PLACEMENT_PATH}.devices: only Volcano reads one; write engine: Volcano, or leave it out")
    if form.feature_gates:
        problems.append(
            f"{PLACEMENT_PATH}.featureGates: only Volcano reads them; write engine: Volcano, or leave them out"
        )
    if form.engine == "KAI":
        return KaiPolicy(conf=_kai_conf(form.conf, folder, problems), usage=_usage(form.usage, problems))
    return PlacementPolicy(
        score=form.score,
        gangs=form.gangs,
        preemption=form.preemption,
        profile=_profile(form, folder, problems),
    )


def _profile(form: PlacementForm, folder: Path | None, problems: list[str]) -> SchedulerProfile | None:
    """The kube-scheduler profile that the scenario names; None if it only sets the scoring."""
    if not form.conf and not form.profile:
        return None
    if form.score != PlacementForm().score:
        problems.append(f"{PLACEMENT_PATH}.score: a profile says itself how nodes are scored; leave one of them out")
    text, name = _text(form.conf, folder, problems)
    if not text and form.conf:
        return None
    read = kube.read_configuration(text, name) if text else kube.ParsedKubeSchedulerConfiguration((SchedulerProfile(),))
    problems.extend(_error_lines(read.errors))
    found = read.named(form.profile)
    if found is None:
        known = ", ".join(profile.name for profile in read.profiles)
        problems.append(f"{PLACEMENT_PATH}.profile: there is no profile {form.profile}; there is {known}")
    return found


def _error_lines(errors: Iterable[Finding]) -> Iterator[str]:
    for error in errors:
        where = f"{error.file}:{error.line}: {error.path}".rstrip(": ")
        yield f"{PLACEMENT_PATH}.conf: {where}: {error.problem}; {error.remedy}"


def _text(said: str, folder: Path | None, problems: list[str], key: str = "conf") -> tuple[str, str]:
    """An inline configuration or that of a file, and its name; an empty text if it cannot be read."""
    if not said or "\n" in said.strip():
        return said, f"{PLACEMENT_PATH}.{key}"
    if folder is None:
        problems.append(
            f"{PLACEMENT_PATH}.{key}: a file is relative to the scenario's own, and this one has none; write it out"
        )
        return "", said
    source = read_file(folder / said)
    problems.extend(
        f"{PLACEMENT_PATH}.{key}: {said}: {trouble.problem}; {trouble.remedy}" for trouble in source.troubles
    )
    return source.text, said


def _kai_conf(said: str, folder: Path | None, problems: list[str]) -> str:
    """The text of KAI's scheduler configuration; empty for KAI's defaults."""
    text, _ = _text(said, folder, problems)
    try:
        parse_configuration(text)
    except BadArgument as problem:
        problems.append(
            f"{PLACEMENT_PATH}.conf: {problem}; write it as KAI's scheduler reads it: actions, tiers of plugins"
        )
        return ""
    return text


def _usage(form: UsageForm | None, problems: list[str]) -> UsagePolicy | None:
    if form is None:
        return None
    spans = {}
    for name, text in (("window", form.window), ("halfLife", form.half_life)):
        try:
            spans[name] = parse_span(text)
        except ValueError as problem:
            problems.append(f"{PLACEMENT_PATH}.usage.{name}: {problem}")
    return UsagePolicy(window=spans.get("window", 0), half_life=spans.get("halfLife", 0))


def _volcano_devices(said: str, folder: Path | None, problems: list[str]) -> str:
    """The text of Volcano's device-config.yaml."""
    text, name = _text(said, folder, problems, "devices")
    try:
        read_groups(text)
    except ValueError as problem:
        problems.append(
            f"{PLACEMENT_PATH}.devices: {name}: {problem}"
            if name != f"{PLACEMENT_PATH}.devices"
            else f"{name}: {problem}"
        )
        return ""
    return text


def _gates(said: dict[str, bool], problems: list[str]) -> dict[str, bool]:
    """Volcano's feature gates that affect scheduling; any other one is an error."""
    known = ", ".join(GATES)
    problems.extend(
        f"{PLACEMENT_PATH}.featureGates.{name}: it changes nothing here; one of {known}"
        for name in sorted(said)
        if name not in GATES
    )
    return {name: said[name] for name in sorted(said.keys() & set(GATES))}


def _volcano_conf(said: str, folder: Path | None, problems: list[str]) -> str:
    """The text of volcano-scheduler.conf; by default that of Volcano's Helm chart."""
    text, name = _text(said, folder, problems)
    if not text:
        return HELM_CONF
    problems.extend(_error_lines(read_configuration(text, name).errors))
    return text
