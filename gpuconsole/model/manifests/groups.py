"""Plain pods of one pod group, folded into one job after all documents are read."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.jobs.naming import POD
from gpuconsole.model.jobs.podgroup import FAST, GROUP, group_of, pod_group, total_of
from gpuconsole.model.manifests.loaded import LoadedObject

Members = list[tuple[Job, LoadedObject]]


def fold_groups(entries: Sequence[LoadedObject]) -> list[LoadedObject]:
    """Replace the pods of each pod group by one job, in the place of its first pod; report incomplete groups."""
    groups: dict[tuple[str, str, str], Members] = {}
    kept: list[LoadedObject | Members] = []
    for entry in entries:
        obj = entry.obj
        name = group_of(obj) if isinstance(obj, Job) and obj.kind == POD else ""
        if not isinstance(obj, Job) or not name:
            kept.append(entry)
            continue
        members = groups.setdefault((entry.scope, obj.namespace, name), [])
        if not members:
            kept.append(members)
        members.append((obj, entry))
    folded = (item if isinstance(item, LoadedObject) else _fold(item) for item in kept)
    return [entry for entry in folded if entry is not None]


def _fold(members: Members) -> LoadedObject | None:
    pods = [pod for pod, _ in members]
    first = members[0][1]
    name, total = group_of(pods[0]), total_of(first.place) or len(pods)
    report, path = first.place.report, first.place.at("metadata", "labels", GROUP)
    missing = total - len(pods)
    if missing > 0 and pods[0].annotations.get(FAST) != "true":
        report.warning(
            path,
            f"'{name}' group has fewer runnable pods than expected: {len(pods)} of {total}; Kueue waits for the rest, "
            "and the group is not simulated",
            f"add {missing} {'pod' if missing == 1 else 'pods'}, or correct the total count",
            "incomplete-pod-group",
        )
        return None
    if len(pods) > total:
        problem = (
            f"'{name}' group has {len(pods)} pods, {len(pods) - total} more than its total count: they are removed"
        )
        report.warning(path, problem, "correct the total count", "excess-pods")
    return replace(first, obj=pod_group(name, pods, total))
