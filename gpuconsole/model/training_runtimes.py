"""Runtimes of Kubeflow Trainer: the pods of a TrainJob before its own changes."""

from msgspec import Struct

from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.quantity import GPU

CLUSTER_WIDE = "ClusterTrainingRuntime"
NODE, LAUNCHER = "node", "launcher"
"""Names of replicated jobs; the container that trains is also named `node`."""


class TrainingRuntime(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """TrainingRuntime of a namespace, or a ClusterTrainingRuntime, which has no namespace."""

    namespace: str = ""
    name: str
    nodes: int | None = None
    """mlPolicy.numNodes."""
    mpi: bool = False
    launcher_is_node: bool = False
    """The launcher trains, too (runLauncherAsNode)."""
    pod_sets: tuple[PodSet, ...] = ()
    """Its replicated jobs, with their own numbers of pods."""
    trainers: tuple[str, ...] = ()
    """Names of those that train; the others fetch data and models first."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def kind(self) -> str:
        return "TrainingRuntime" if self.namespace else CLUSTER_WIDE


_DATASET, _MODEL = "dataset-initializer", "model-initializer"
_IMAGES = "ghcr.io/kubeflow/trainer"
_TUNE = f"{_IMAGES}/torchtune-trainer"


def _pods(name: str, image: str, container: str = NODE, gpus: int = 0) -> PodSet:
    asked = {GPU: gpus} if gpus else {}
    part = Container(name=container, image=image, limits=asked)
    return PodSet(name=name, template=PodTemplate(containers=(part,), restart_policy="OnFailure"))


def _initializer(name: str) -> PodSet:
    return _pods(name, f"{_IMAGES}/{name}", name)


def _mpi(name: str, image: str) -> TrainingRuntime:
    pod_sets = (_pods(NODE, image), _pods(LAUNCHER, image))
    return TrainingRuntime(name=name, nodes=1, mpi=True, launcher_is_node=True, pod_sets=pod_sets, trainers=(LAUNCHER,))


def _plain(name: str, *pod_sets: PodSet) -> TrainingRuntime:
    return TrainingRuntime(name=name, nodes=1, pod_sets=pod_sets, trainers=(NODE,))


SHIPPED: dict[str, TrainingRuntime] = {
    runtime.name: runtime
    for runtime in (
        _plain("torch-distributed", _pods(NODE, "pytorch/pytorch")),
        _plain("torch-distributed-with-cache", _initializer(_DATASET), _pods(NODE, "pytorch/pytorch")),
        _plain("jax-distributed", _pods(NODE, "nvcr.io/nvidia/jax")),
        _plain("xgboost-distributed", _pods(NODE, f"{_IMAGES}/xgboost-runtime")),
        _mpi("deepspeed-distributed", f"{_IMAGES}/deepspeed-runtime"),
        _mpi("mlx-distributed", f"{_IMAGES}/mlx-runtime"),
        *(
            _plain(f"torchtune-{model}", _initializer(_DATASET), _initializer(_MODEL), _pods(NODE, _TUNE, gpus=2))
            for model in ("llama3.2-1b", "llama3.2-3b", "qwen2.5-1.5b")
        ),
    )
}
"""ClusterTrainingRuntimes that the trainer's Helm chart installs; TrainJobs may use them without a manifest."""
