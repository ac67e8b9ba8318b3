"""Which workload is meant by the name that somebody typed: any name under which an answer shows it will do."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from gpuconsole.errors import UsageError
from gpuconsole.insight.stand_ins import outermost, stand_ins
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.names import called

CLOSE = 3
"""So many names that are like an unknown one are offered."""
_EMPTY = "without a name"


def subject_named(snapshot: Snapshot, name: str, told: Collection[str] = ()) -> str:
    """The key of one of `told`, which need not be there any more; of a Workload; else of a job or a pod.

    Raises UsageError.
    """
    found = [name] if name in told else [key for key in told if name in _names(key)]
    found = found or _workloads(snapshot, name) or _unqueued(snapshot, name)
    return _only(snapshot, name, found, "workload, job or pod")


def whole_named(snapshot: Snapshot, name: str) -> str:
    """The key of a Workload, or of the job or lone pod that none stands for; a pod means what it is part of.

    Raises UsageError.
    """
    key = subject_named(snapshot, name)
    pod = snapshot.pods.get(key) if key not in snapshot.workloads else None
    if pod is not None and pod.workload:
        return pod.workload
    whole = outermost(snapshot.jobs.get, pod.job if pod is not None and pod.job else key)
    if whole in snapshot.workloads or whole in stand_ins(snapshot):
        return whole
    raise UsageError(f"{whole} neither runs nor waits by itself: ask for a job that it makes")


def _unqueued(snapshot: Snapshot, name: str) -> list[str]:
    """Jobs and pods of this name."""
    return [key for keys in (snapshot.jobs, snapshot.pods) for key in keys if name in (key, _plain(key), _bare(key))]


def _workloads(snapshot: Snapshot, name: str) -> list[str]:
    """The Workload of this key; else those of a job of this name, or called so, in any namespace where it has none."""
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
        raise UsageError(f"{name} is not one {what}: {', '.join(sorted(found)[:8])}; write one of them")
    near = _close(name, (called(key) for key in snapshot.workloads))
    raise UsageError(f"there is no {what} {name or _EMPTY}" + (f"; did you mean {', '.join(near)}?" if near else ""))


def _close(name: str, names: Iterable[str]) -> list[str]:
    """Names like it, the likest first; without a namespace it is held against their last part alone."""
    whole = {(_bare(one) if "/" not in name else one): one for one in names}
    return [whole[one] for one in get_close_matches(name[:120], whole, CLOSE, 0.75)]
