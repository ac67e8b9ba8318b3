"""GPU partitioning, sharing and interconnects of simulated nodes, as the device plugin and the MIG manager set them up.

Applied to nodes as they join; links in a node's own annotations stay. Autoscalers know the resources of the nodes that
they could provision, as from NodeOverlays and the template tags of groups.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus import mig_reconfiguration as mig_parted
from gpuconsole.model.gpus.mig_resources import DYNAMIC, LAYOUT, MigStrategy, offer, written
from gpuconsole.model.gpus.models import GpuModel, model_of
from gpuconsole.model.gpus.sharing import FAIL, Sharing, labelled, shared
from gpuconsole.model.resources import GPU, is_mig


class Mig(Struct, frozen=True, kw_only=True):
    """A MIG configuration of GPUs."""

    strategy: MigStrategy
    name: str
    """Name of the configuration, as in the label nvidia.com/mig.config."""
    config: mig_parted.Config | None = None
    """None: mig-parted's configuration of that name for the GPU model."""
    dynamic: bool = False


class SharingRule(Struct, frozen=True, kw_only=True):
    """The GPU sharing of some nodes."""

    node_selector: Mapping[str, str]
    mig: Mig | None = None
    sharing: Sharing | None = None


class GpuSetup(Struct, frozen=True, kw_only=True):
    """The GPU setup of all nodes."""

    rules: tuple[SharingRule, ...] = ()
    """The first rule whose selector matches a node applies."""
    links: Mapping[str, str] = {}
    """Annotations that describe the GPU interconnects."""


BARE = GpuSetup()


def apply_gpu_setup(node: Node, equipment: GpuSetup, problems: list[str] | None = None) -> Node:
    """The node with its GPU setup applied; errors are added to `problems`.

    An invalid MIG configuration leaves its GPUs whole.
    """
    if equipment == BARE or not node.gpus:
        return node
    node = replace(node, annotations={**equipment.links, **node.annotations})
    rule = next((rule for rule in equipment.rules if rule.node_selector.items() <= node.labels.items()), None)
    if rule is None:
        return node
    divided = node if rule.mig is None else _divided(node, rule.mig, [] if problems is None else problems)
    return divided if rule.sharing is None else _shared(divided, rule.sharing)


def _divided(node: Node, mig: Mig, problems: list[str]) -> Node:
    model = model_of(node.labels)
    config = mig.config if mig.config is not None or model is None else mig_parted.known(model, mig.name)
    if model is None or config is None:
        what = "its labels name no GPU with MIG" if model is None else f"there is no configuration {mig.name}"
        problems.append(f"node {node.name}: {what}")
        return node
    try:
        layouts = mig_parted.divided(config, model, node.allocatable.get(GPU, 0))
    except mig_parted.MigConfigError as error:
        problems.append(f"node {node.name}: {error}")
        return node
    product = node.labels.get("nvidia.com/gpu.product", model.name)
    offered = offer(model, product, layouts, mig.strategy)
    if offered.problem:
        problems.append(f"node {node.name} offers nothing under single: {offered.problem}")
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
    """The capacity of dynamically partitioned GPUs: for each MIG profile the most instances of it alone."""
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
