"""Usage of ResourceQuotas, updated with every created, changed or deleted object."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PriorityClass, ResourceQuota, default_class
from gpuconsole.model.objects import TABLES
from gpuconsole.model.resource_quota import COUNTED, Counted, counted, used_by
from gpuconsole.model.state import ClusterState


class QuotaUsage:
    """Cache of the quotas of queried namespaces, with their current usage.

    A namespace is counted when it is first queried; each change of an object then adjusts the count. A changed quota
    recounts its namespace, a changed priority class all.
    """

    def __init__(self) -> None:
        self._quotas: dict[str, tuple[ResourceQuota, ...]] = {}
        self._default_class = ""

    def of(self, state: ClusterState, namespace: str) -> tuple[ResourceQuota, ...]:
        """The quotas of a namespace by name, with their current usage."""
        known = self._quotas.get(namespace)
        if known is None:
            self._default_class = default_class(state.table("priority_classes").all())[1]
            known = self._quotas[namespace] = self._counted(state, namespace)
        return known

    def change(self, kind: type, old: object, new: object) -> None:
        """Adjust the counts for an object that was created, changed or deleted (old or new is None)."""
        if not self._quotas:
            return
        if kind is ResourceQuota:
            self._note_quota(old, new)
        elif kind is PriorityClass:
            self._quotas.clear()
        elif kind in COUNTED and not (type(old) is type(new) and _uses_the_same(old, new)):
            self._add(old, -1)
            self._add(new, 1)

    def forget(self) -> None:
        """Recount all namespaces, after changes that bypassed the cache."""
        self._quotas.clear()

    def fork(self) -> "QuotaUsage":
        """Return an equal, independent copy."""
        twin = QuotaUsage()
        twin._quotas, twin._default_class = self._quotas.copy(), self._default_class
        return twin

    def _counted(self, state: ClusterState, namespace: str) -> tuple[ResourceQuota, ...]:
        quotas = [quota for quota in state.table("resource_quotas").all() if quota.namespace == namespace]
        objs = _objects(state, namespace) if quotas else {}
        return tuple(
            replace(quota, used={**quota.used, **counted(quota, objs, self._default_class)})
            for quota in sorted(quotas, key=lambda quota: quota.name)
        )

    def _note_quota(self, old: object, new: object) -> None:
        namespaces = {quota.namespace for quota in (old, new) if isinstance(quota, ResourceQuota)}
        for namespace in namespaces:
            # A quota with the usage counted here needs no recount.
            if new not in self._quotas.get(namespace, ()):
                self._quotas.pop(namespace, None)

    def _add(self, obj: object, sign: int) -> None:
        if not isinstance(obj, COUNTED) or not self._quotas.get(obj.namespace):
            return
        self._quotas[obj.namespace] = tuple(
            _with(quota, obj, sign, self._default_class) for quota in self._quotas[obj.namespace]
        )


def _objects(state: ClusterState, namespace: str) -> dict[type[Counted], list[Counted]]:
    """The objects of a namespace that quotas count, of the kinds that are completely visible."""
    return {
        kind: [obj for obj in state.table(TABLES[kind]).all() if obj.namespace == namespace]
        for kind in COUNTED
        if state.seen.all_of(kind, within=namespace)
    }


def _uses_the_same(old: object, new: object) -> bool:
    """True if a change cannot affect an object's usage, as most changes are of statuses."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        return old.template is new.template and old.done == new.done
    return old == new


def _with(quota: ResourceQuota, obj: Counted, sign: int, default_class: str) -> ResourceQuota:
    usage = used_by(quota, obj, default_class)
    if not usage:
        return quota
    return replace(
        quota, used={**quota.used, **{name: quota.used.get(name, 0) + sign * n for name, n in usage.items()}}
    )
