"""Finds the workload, job or pod of a typed name, which is any name that an answer shows."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from gpuconsole.errors import UsageError
from gpuconsole.insight.index.unqueued_work import outermost, unqueued_work
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.names import called

CLOSE = 3
"""Number of similar names that are suggested for an unknown one."""
_EMPTY = "with an empty name"


def subject_named(snapshot: Snapshot, name: str, known: Collection[str] = ()) -> str:
    """The key of one of `told` (which may be deleted), of a Workload, or else of a job or pod.

    Raises UsageError.
    """
    found = [name] if name in known else [key for key in known if name in _names(key)]
    found = found or _workloads(snapshot, name) or _unqueued(snapshot, name)
    return _only(snapshot, name, found, "workload, job or pod")


def whole_named(snapshot: Snapshot, name: str) -> str:
    """The key of a Workload, or of a job or pod without one; a pod resolves to its workload or job.

    Raises UsageError.
    """
    key = subject_named(snapshot, name)
    pod = snapshot.pods.get(key) if key not in snapshot.workloads else None
    if pod is not None and pod.workload:
        return pod.workload
    whole = outermost(snapshot.jobs.get, pod.job if pod is not None and pod.job else key)
    if whole in snapshot.workloads or whole in unqueued_work(snapshot):
        return whole
    raise UsageError(f"{whole} has no pods of its own; name a job that it creates")


def _unqueued(snapshot: Snapshot, name: str) -> list[str]:
    """Jobs and pods of this name."""
    return [key for keys in (snapshot.jobs, snapshot.pods) for key in keys if name in (key, _plain(key), _bare(key))]


def _workloads(snapshot: Snapshot, name: str) -> list[str]:
    """The Workload of this key; else those of jobs of this name, in any namespace if none is given."""
    if name in snapshot.workloads:
        return [name]
    return [one.key for one in snapshot.workloads.all() if name in _names(one.key, one.owner)]


def _names(key: str, owner: str = "") -> set[str]:
    keys = {key, called(key), owner or key}
    return {*keys, *map(_plain, keys), *map(_bare, keys)}


def _plain(key: str) -> str:
    """`namespace/name` of `Kind/namespace/name`."""
    return key.partition("/")[2] if key.count("/") > 1 else key


def _bare(key: str) -> str:
    return key.rpartition("/")[2]


def _only(snapshot: Snapshot, name: str, found: list[str], what: str) -> str:
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name} is ambiguous: {', '.join(sorted(found)[:8])}; use one of these names")
    near = _close(name, (called(key) for key in snapshot.workloads))
    raise UsageError(f"there is no {what} {name or _EMPTY}" + (f"; did you mean {', '.join(near)}?" if near else ""))


def _close(name: str, names: Iterable[str]) -> list[str]:
    """Similar names, closest first; a name without a namespace is compared with the last part only."""
    whole = {(_bare(one) if "/" not in name else one): one for one in names}
    return [whole[one] for one in get_close_matches(name[:120], whole, CLOSE, 0.75)]
