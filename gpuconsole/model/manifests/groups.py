"""Plain pods that stand for one job: they are put together once all documents are read."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.job import Job
from gpuconsole.model.jobs.naming import POD
from gpuconsole.model.jobs.podgroup import FAST, GROUP, group_of, pod_group, total_of
from gpuconsole.model.manifests.loaded import Entry

Members = list[tuple[Job, Entry]]


def fold_groups(entries: Sequence[Entry]) -> list[Entry]:
    """Replace the pods of each pod group by one job, in the place of its first pod; report incomplete groups."""
    groups: dict[tuple[str, str, str], Members] = {}
    kept: list[Entry | Members] = []
    for entry in entries:
        thing = entry.thing
        name = group_of(thing) if isinstance(thing, Job) and thing.kind == POD else ""
        if not isinstance(thing, Job) or not name:
            kept.append(entry)
            continue
        members = groups.setdefault((entry.scope, thing.namespace, name), [])
        if not members:
            kept.append(members)
        members.append((thing, entry))
    folded = (item if isinstance(item, Entry) else _fold(item) for item in kept)
    return [entry for entry in folded if entry is not None]


def _fold(members: Members) -> Entry | None:
    pods = [pod for pod, _ in members]
    first = members[0][1]
    name, total = group_of(pods[0]), total_of(first.place) or len(pods)
    report, path = first.place.report, first.place.at("metadata", "labels", GROUP)
    missing = total - len(pods)
    if missing > 0 and pods[0].annotations.get(FAST) != "true":
        report.warning(
            path,
            f"'{name}' group has fewer runnable pods than expected: {len(pods)} of {total}; Kueue waits for the rest, "
            "and the group is left out",
            f"add {missing} {'pod' if missing == 1 else 'pods'}, or correct the total count",
            "incomplete-pod-group",
        )
        return None
    if len(pods) > total:
        problem = (
            f"'{name}' group has {len(pods)} pods, {len(pods) - total} more than its total count: they are removed"
        )
        report.warning(path, problem, "correct the total count", "excess-pods")
    return replace(first, thing=pod_group(name, pods, total))
