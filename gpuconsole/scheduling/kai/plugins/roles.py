"""kubeflow and ray plugins: the leader pod of a job comes first (KAI 0.13 plugins/kubeflow, plugins/ray)."""

from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


def leads_by_kubeflow(task: PodInfo) -> bool:
    return task.spec.labels.get("training.kubeflow.org/job-role") in ("master", "launcher")


def leads_by_ray(task: PodInfo) -> bool:
    return task.spec.labels.get("ray.io/node-type") == "head"


class Kubeflow:
    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_kubeflow(other) - leads_by_kubeflow(one))


class Ray:
    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_ray(other) - leads_by_ray(one))
