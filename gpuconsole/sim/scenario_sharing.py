"""How the GPUs of a scenario's nodes are divided, shared and joined, applied to nodes as they join.

`engine.sharing` and `engine.capacity.links`; what a node's own annotations say of its links stays.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Submit
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.gpus import parted, wiring
from gpuconsole.model.gpus.instances import DYNAMIC, LAYOUT, written
from gpuconsole.model.gpus.models import GpuModel, model_of
from gpuconsole.model.gpus.sharing import FAIL, SharedResource, Sharing, SharingKind, labelled, shared
from gpuconsole.model.gpus.strategies import MigStrategy, offer
from gpuconsole.model.objects import Object
from gpuconsole.model.quantity import GPU
from gpuconsole.model.resources import is_mig
from gpuconsole.model.text import clean
from gpuconsole.sim.scenario_form import Document, EngineForm, LinksForm, MigForm, ReplicasForm, SharingForm
from gpuconsole.sim.scenario_steps import Step

PATH = "engine.sharing"
_LINKS = "engine.capacity.links"


class Mig(Struct, frozen=True, kw_only=True):
    """How GPUs are divided into MIG instances."""

    strategy: MigStrategy
    name: str
    """Of the configuration, as the label nvidia.com/mig.config has it."""
    config: parted.Config | None = None
    """None is what mig-parted knows by that name for the model."""
    dynamic: bool = False


class SharingRule(Struct, frozen=True, kw_only=True):
    """What becomes of the GPUs of some nodes."""

    node_selector: Mapping[str, str]
    mig: Mig | None = None
    sharing: Sharing | None = None


class Equipment(Struct, frozen=True, kw_only=True):
    """What a scenario makes of nodes with GPUs."""

    rules: tuple[SharingRule, ...] = ()
    """The first that fits a node counts."""
    links: Mapping[str, str] = {}
    """Annotations about what joins GPUs."""


BARE = Equipment()


def equipment_of(form: EngineForm, folder: Path | None, problems: list[str]) -> Equipment:
    """Read how GPUs are shared and joined; what is wrong is added to `problems`."""
    said = form.sharing
    forms = said if isinstance(said, tuple) else (said,)
    paths = [f"{PATH}[{n}]" for n in range(len(forms))] if isinstance(said, tuple) else [PATH]
    rules = tuple(_rule(one, path, folder, problems) for one, path in zip(forms, paths, strict=True))
    return Equipment(rules=rules, links=_links(form.capacity.links, problems))


def equip(things: Iterable[Object], equipment: Equipment, problems: list[str]) -> tuple[Object, ...]:
    """The objects, with what becomes of each node."""
    if equipment == BARE:
        return tuple(things)
    return tuple(_equipped(thing, equipment, problems) if isinstance(thing, Node) else thing for thing in things)


def equip_steps(steps: Iterable[Step], equipment: Equipment, problems: list[str]) -> tuple[Step, ...]:
    """The steps, with what becomes of the nodes that join in them."""
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


def _configs(said: Document | str, path: str, folder: Path | None, problems: list[str]) -> Mapping[str, parted.Config]:
    """mig-parted's configurations, written out or in a file."""
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
    configs, findings = parted.read(text, name)
    problems.extend(f"{path}.configs: {one.path}: {one.problem}; {one.remedy}" for one in findings)
    return configs


def _links(form: LinksForm, problems: list[str]) -> dict[str, str]:
    if form.wiring and not wiring.is_readable(form.wiring):
        problems.append(f"{_LINKS}.wiring: {clean(repr(form.wiring), 80)} is not nvlink=0-3,4-7 switch=0-1,… numa=…")
    numbers = {wiring.NVLINK_BANDWIDTH: form.nvlink, wiring.NETWORK_BANDWIDTH: form.network}
    if any(number is not None and not 0 < number < 1_000_000 for number in numbers.values()):
        problems.append(f"{_LINKS}: nvlink and network are GB/s, 1 or more")
    notes = {name: str(number) for name, number in numbers.items() if number is not None}
    return notes | ({wiring.WIRING: form.wiring} if form.wiring else {})


def _equipped(node: Node, equipment: Equipment, problems: list[str]) -> Node:
    if not node.gpus:
        return node
    node = replace(node, annotations={**equipment.links, **node.annotations})
    rule = next((rule for rule in equipment.rules if rule.node_selector.items() <= node.labels.items()), None)
    if rule is None:
        return node
    divided = node if rule.mig is None else _divided(node, rule.mig, problems)
    return divided if rule.sharing is None else _shared(divided, rule.sharing)


def _divided(node: Node, mig: Mig, problems: list[str]) -> Node:
    model = model_of(node.labels)
    config = mig.config if mig.config is not None or model is None else parted.known(model, mig.name)
    if model is None or config is None:
        what = "its labels name no GPU with MIG" if model is None else f"there is no configuration {mig.name}"
        problems.append(f"{PATH}.mig: node {node.name}: {what}")
        return node
    try:
        layouts = parted.divided(config, model, node.allocatable.get(GPU, 0))
    except parted.ConfigError as error:
        problems.append(f"{PATH}.mig: node {node.name}: {error}")
        return node
    product = node.labels.get("nvidia.com/gpu.product", model.name)
    offered = offer(model, product, layouts, mig.strategy)
    if offered.problem:
        problems.append(f"{PATH}.mig: node {node.name} offers nothing under single: {offered.problem}")
    resources = _dynamic(model, len(layouts)) if mig.dynamic else offered.resources
    notes = {LAYOUT: written(layouts)}
    notes = {DYNAMIC: str(len(layouts))} if mig.dynamic else notes if any(map(is_mig, resources)) else {}
    return replace(
        node,
        labels={**node.labels, **offered.labels, "nvidia.com/mig.config": mig.name, _STATE: "success"},
        annotations={**node.annotations, **notes},
        capacity=_instead(node.capacity, resources),
        allocatable=_instead(node.allocatable, resources),
    )


_STATE = "nvidia.com/mig.config.state"


def _dynamic(model: GpuModel, gpus: int) -> dict[str, int]:
    """What GPUs offer that are divided as pods come: of each profile what one alone could be divided into."""
    assert model.mig is not None
    return {
        profile.resource: gpus
        * (1 if profile.media else min(len(profile.starts), model.mig.compute // profile.compute))
        for profile in model.mig.profiles
    }


def _instead(resources: Mapping[str, int], offered: Mapping[str, int]) -> dict[str, int]:
    return {**{name: amount for name, amount in resources.items() if name != GPU}, **offered}


def _shared(node: Node, sharing: Sharing) -> Node:
    return replace(
        node,
        labels=labelled(node.labels, node.allocatable, sharing),
        annotations={**node.annotations, **({FAIL: "true"} if sharing.strict else {})},
        capacity=shared(node.capacity, sharing),
        allocatable=shared(node.allocatable, sharing),
    )
