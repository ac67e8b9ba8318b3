"""Reads `engine.sharing` and `engine.capacity.links` of a scenario: GPU partitioning, sharing, interconnects."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Submit
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.gpus import mig_reconfiguration as mig_parted
from gpuconsole.model.gpus import models as interconnect
from gpuconsole.model.gpus.mig_resources import MigStrategy
from gpuconsole.model.gpus.sharing import SharedResource, Sharing, SharingKind
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import GPU
from gpuconsole.model.text import clean
from gpuconsole.sim.gpu_setup import BARE, GpuSetup, Mig, SharingRule, apply_gpu_setup
from gpuconsole.sim.scenario_form import Document, EngineForm, LinksForm, MigForm, ReplicasForm, SharingForm
from gpuconsole.sim.scenario_steps import Step

SHARING_PATH = "engine.sharing"
_LINKS = "engine.capacity.links"


def equipment_of(form: EngineForm, folder: Path | None, problems: list[str]) -> GpuSetup:
    """Read the GPU sharing and the interconnects; errors are added to `problems`."""
    said = form.sharing
    forms = said if isinstance(said, tuple) else (said,)
    paths = [f"{SHARING_PATH}[{n}]" for n in range(len(forms))] if isinstance(said, tuple) else [SHARING_PATH]
    rules = tuple(_rule(one, path, folder, problems) for one, path in zip(forms, paths, strict=True))
    return GpuSetup(rules=rules, links=_links(form.capacity.links, problems))


def equip(objs: Iterable[Object], equipment: GpuSetup, problems: list[str]) -> tuple[Object, ...]:
    """Apply the GPU setup to the nodes among the objects."""
    if equipment == BARE:
        return tuple(objs)
    return tuple(_of(obj, equipment, problems) if isinstance(obj, Node) else obj for obj in objs)


def equip_steps(steps: Iterable[Step], equipment: GpuSetup, problems: list[str]) -> tuple[Step, ...]:
    """Apply the GPU setup to the nodes that steps create."""
    return tuple(
        replace(
            step,
            commands=tuple(
                Submit(equip(command.objects, equipment, problems)) if isinstance(command, Submit) else command
                for command in step.commands
            ),
        )
        for step in steps
    )


def _of(node: Node, equipment: GpuSetup, problems: list[str]) -> Node:
    found: list[str] = []
    made = apply_gpu_setup(node, equipment, found)
    problems.extend(f"{SHARING_PATH}.mig: {problem}" for problem in found)
    return made


def _rule(form: SharingForm, path: str, folder: Path | None, problems: list[str]) -> SharingRule:
    if form.time_slicing is not None and form.mps is not None:
        problems.append(f"{path}: timeSlicing and mps exclude each other; leave one of them out")
    kind = SharingKind.TIME_SLICING if form.mps is None else SharingKind.MPS
    said = form.time_slicing or form.mps
    return SharingRule(
        node_selector=form.node_selector,
        mig=None if form.mig is None else _mig(form.mig, f"{path}.mig", folder, problems),
        sharing=None if said is None else _sharing(said, kind, path, problems),
    )


def _sharing(form: ReplicasForm, kind: SharingKind, path: str, problems: list[str]) -> Sharing:
    path = f"{path}.{'mps' if kind is SharingKind.MPS else 'timeSlicing'}"
    for number, resource in enumerate(form.resources):
        if resource.replicas < 2:
            problems.append(f"{path}.resources[{number}].replicas: {resource.replicas} shares nothing; write 2 or more")
        if kind is SharingKind.MPS and resource.name != GPU:
            problems.append(f"{path}.resources[{number}].name: MPS shares whole GPUs only; write {GPU}")
    return Sharing(
        kind=kind,
        rename_by_default=form.rename_by_default,
        fail_requests_greater_than_one=form.fail_requests_greater_than_one,
        resources=tuple(SharedResource(name=r.name, replicas=r.replicas, rename=r.rename) for r in form.resources),
    )


def _mig(form: MigForm, path: str, folder: Path | None, problems: list[str]) -> Mig:
    configs = {} if form.configs is None else _configs(form.configs, path, folder, problems)
    if form.dynamic and form.strategy != "mixed":
        problems.append(f"{path}.dynamic: instances that come and go have names of their own; write strategy: mixed")
    config = configs.get(form.config)
    return Mig(strategy=MigStrategy(form.strategy), name=form.config, config=config, dynamic=form.dynamic)


def _configs(
    said: Document | str, path: str, folder: Path | None, problems: list[str]
) -> Mapping[str, mig_parted.Config]:
    """mig-parted's configurations, inline or in a file."""
    if isinstance(said, dict):
        # JSON is YAML, so the reader of files reads this one, too.
        text, name = msgspec.json.encode(said).decode(), "configs"
    elif folder is None:
        problems.append(
            f"{path}.configs: a file is relative to the scenario's own, and this one has none; write it out"
        )
        return {}
    else:
        source = read_file(folder / said)
        problems.extend(f"{path}.configs: {said}: {one.problem}; {one.remedy}" for one in source.troubles)
        text, name = source.text, said
    configs, findings = mig_parted.read(text, name)
    problems.extend(f"{path}.configs: {one.path}: {one.problem}; {one.remedy}" for one in findings)
    return configs


def _links(form: LinksForm, problems: list[str]) -> dict[str, str]:
    if form.wiring and not interconnect.is_readable(form.wiring):
        problems.append(f"{_LINKS}.wiring: {clean(repr(form.wiring), 80)} is not nvlink=0-3,4-7 switch=0-1,… numa=…")
    numbers = {interconnect.NVLINK_BANDWIDTH: form.nvlink, interconnect.NETWORK_BANDWIDTH: form.network}
    if any(number is not None and not 0 < number < 1_000_000 for number in numbers.values()):
        problems.append(f"{_LINKS}: nvlink and network are GB/s, 1 or more")
    notes = {name: str(number) for name, number in numbers.items() if number is not None}
    return notes | ({interconnect.WIRING: form.wiring} if form.wiring else {})
