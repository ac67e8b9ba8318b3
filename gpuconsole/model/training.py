"""Runtimes of Kubeflow's trainer: what the pods of a TrainJob are before it changes anything."""

from msgspec import Struct

from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import Container, PodTemplate

CLUSTER_WIDE = "ClusterTrainingRuntime"
NODE, LAUNCHER = "node", "launcher"
"""Names of jobs, and of the container that trains."""


class TrainingRuntime(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A TrainingRuntime of a namespace, or a ClusterTrainingRuntime, which has none."""

    namespace: str = ""
    name: str
    nodes: int | None = None
    """mlPolicy.numNodes."""
    mpi: bool = False
    launcher_is_node: bool = False
    """The launcher trains, too (runLauncherAsNode)."""
    pod_sets: tuple[PodSet, ...] = ()
    """Its replicated jobs, as many pods as they say themselves."""
    trainers: tuple[str, ...] = ()
    """Those that train; the others fetch data and models first."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def kind(self) -> str:
        return "TrainingRuntime" if self.namespace else CLUSTER_WIDE


_SHIPPED_POD = PodTemplate(containers=(Container(name=NODE, image="pytorch/pytorch"),), restart_policy="Never")
SHIPPED: dict[str, TrainingRuntime] = {
    name: TrainingRuntime(name=name, nodes=1, pod_sets=(PodSet(name=NODE, template=_SHIPPED_POD),), trainers=(NODE,))
    for name in ("torch-distributed",)
}
"""What an installation of the trainer brings along; a TrainJob may name it although no manifest defines it."""
