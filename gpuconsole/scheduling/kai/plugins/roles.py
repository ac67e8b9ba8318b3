"""kubeflow and ray plugins: the leader pod of a job comes first (KAI 0.13 plugins/kubeflow, plugins/ray)."""

from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


def leads_by_kubeflow(task: PodInfo) -> bool:
    """True for the master or launcher pod of a Kubeflow job."""
    return task.spec.labels.get("training.kubeflow.org/job-role") in ("master", "launcher")


def leads_by_ray(task: PodInfo) -> bool:
    """True for the head pod of a Ray cluster."""
    return task.spec.labels.get("ray.io/node-type") == "head"


class Kubeflow:
    """Registers the task order of the kubeflow plugin."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_kubeflow(other) - leads_by_kubeflow(one))


class Ray:
    """Registers the task order of the ray plugin."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_ray(other) - leads_by_ray(one))
