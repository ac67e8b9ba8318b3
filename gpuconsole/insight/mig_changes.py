"""Plan of a MIG reconfiguration: instances that are removed, and pods that must be evicted first."""

from collections.abc import Mapping

from gpuconsole.insight.pods_by_node import pods_by_node
from gpuconsole.model.gpus import mig_reconfiguration as mig_parted
from gpuconsole.model.gpus.mig_reconfiguration import MigGpuChange, MigNodeChange, mig_node_changes
from gpuconsole.model.gpus.models import model_of
from gpuconsole.model.snapshot import Snapshot

__all__ = ["MigGpuChange", "MigNodeChange", "mig_changes"]

_NO_CONFIGS: Mapping[str, mig_parted.Config] = {}


def mig_changes(
    snapshot: Snapshot, name: str, configs: Mapping[str, mig_parted.Config] = _NO_CONFIGS
) -> tuple[MigNodeChange, ...]:
    """Compute the changes of a mig-parted configuration on every node with MIG, by node name.

    `configs` takes precedence over mig-parted's own configurations.
    """
    here = pods_by_node(snapshot)
    found = [(node, model_of(node.labels)) for node in snapshot.nodes.all()]
    return tuple(
        mig_node_changes(node, model, tuple(here.on(node.name).values()), name, configs)
        for node, model in sorted(found, key=lambda pair: pair[0].name)
        if model is not None and model.mig is not None
    )
