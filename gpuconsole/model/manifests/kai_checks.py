"""Cross-object checks for KAI: missing queues and topologies, and queues that take no jobs."""

from collections.abc import Mapping

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.kai import KaiPodGroup, KaiQueue
from gpuconsole.model.manifests.loaded import LoadedObject

Names = Mapping[str, Mapping[str, LoadedObject]]


def check_kai_queue(queue: KaiQueue, place: Reader, names: Names) -> None:
    """Report a missing parent, and a GPU quota above the limit.

    KAI leaves out queues whose chain of parents does not end at a queue without a parent.
    """
    if queue.parent and queue.parent not in names.get("kai_queues", {}):
        problem = f"KAI Queue {queue.parent} is not defined: KAI leaves this queue out, and all below it"
        _undefined(place, ("spec", "parentQueue"), problem, f"define a Queue {queue.parent}, or leave the parent out")
    limit, quota = queue.gpu.limit, queue.gpu.quota
    if limit != -1 and (quota > limit or quota == -1):
        problem = f"its quota of GPUs, {quota:g}, is above its limit, {limit:g}: it never gets more than the limit"
        place.report.note(place.at("spec", "resources", "gpu"), problem, "raise the limit, or lower the quota", "quota")


def check_kai_group(group: KaiPodGroup, place: Reader, names: Names) -> None:
    """Report a queue that is missing or takes no jobs, and missing topologies."""
    check_queue_for_jobs(group.queue, place, ("spec", "queue"), names)
    for path, constraint in (
        (("spec", "topologyConstraint"), group.constraint),
        *(((*("spec", "subGroups"), n, "topologyConstraint"), s.constraint) for n, s in enumerate(group.sub_groups)),
    ):
        if constraint is not None and constraint.topology and constraint.topology not in names.get("topologies", {}):
            problem = f"Requested topology {constraint.topology} does not exist"
            _undefined(place, (*path, "topology"), problem, f"define a Topology {constraint.topology}")


def check_queue_for_jobs(name: str, place: Reader, path: Path, names: Names) -> None:
    """Report a queue that is missing or has child queues: only leaf queues take jobs."""
    queues = names.get("kai_queues", {})
    if not queues and name:
        # The queues may be defined elsewhere.
        remedy = f"define a Queue {name}, or name another one"
        place.report.note(place.at(*path), f"Queue '{name}' does not exist", remedy, "undefined-kai")
    elif name not in queues:
        _undefined(place, path, f"Queue '{name}' does not exist", f"define a Queue {name}, or name another one")
    elif any(isinstance(e.obj, KaiQueue) and e.obj.parent == name for e in queues.values()):
        problem = f"KAI Queue {name} has queues below it: it takes no jobs"
        place.report.warning(place.at(*path), problem, "name one of the queues below it", "kai-queue-with-children")


def _undefined(place: Reader, path: Path, problem: str, remedy: str) -> None:
    place.report.warning(place.at(*path), problem, remedy, "undefined-kai")
