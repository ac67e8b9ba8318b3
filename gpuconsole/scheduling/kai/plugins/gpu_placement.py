"""gpupack and gpuspread plugins: prefer the fullest shared GPU, or unused GPUs and then the emptiest (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import WHOLE_GPU, KaiSession


class GpuPack:
    """Registers the GPU order of gpupack."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.gpu_order.append(gpu_pack_score)


class GpuSpread:
    """Registers the GPU order of gpuspread."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.gpu_order.append(gpu_spread_score)


def gpu_pack_score(task: PodInfo, node: KaiNodeInfo, group: str) -> float:
    """Score of a GPU, 0 to 1: its used fraction."""
    return 0 if group == WHOLE_GPU else used_part(node, group)


def gpu_spread_score(task: PodInfo, node: KaiNodeInfo, group: str) -> float:
    """Score of a GPU, 0 to 1: its unused fraction."""
    return 1 if group == WHOLE_GPU else 1 - used_part(node, group)


def used_part(node: KaiNodeInfo, group: str) -> float:
    """Used fraction of a GPU's memory. Raises ValueError if the node's GPUs have less than 100 MiB."""
    if node.gpu_memory < 100:
        raise ValueError(f"node <{node.name}> has invalid GPU memory")
    return node.shared.used.get(group, 0) / node.gpu_memory
