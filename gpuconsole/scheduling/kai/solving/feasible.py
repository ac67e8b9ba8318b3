"""Preselection of nodes for a job (KAI 0.13 actions/common feasible_nodes)."""

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo


def feasible_nodes(nodes: list[KaiNodeInfo], job: PodGroupInfo) -> list[KaiNodeInfo]:
    """All nodes; if every task of the job needs GPUs, only nodes with idle or releasing GPUs."""
    if any(not task.needs_gpu for task in job.tasks()):
        return nodes
    return [node for node in nodes if node.idle_gpus() > 0 or node.releasing_gpus() > 0]
