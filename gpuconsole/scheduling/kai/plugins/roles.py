"""kubeflow and ray: the pod that leads a job comes first (KAI 0.13 plugins/kubeflow, plugins/ray)."""

from gpuconsole.scheduling.kai.api.tasks import Task
from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.session import Session


def leads_by_kubeflow(task: Task) -> bool:
    return task.spec.labels.get("training.kubeflow.org/job-role") in ("master", "launcher")


def leads_by_ray(task: Task) -> bool:
    return task.spec.labels.get("ray.io/node-type") == "head"


class Kubeflow:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_kubeflow(other) - leads_by_kubeflow(one))


class Ray:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.task_order.append(lambda one, other: leads_by_ray(other) - leads_by_ray(one))
