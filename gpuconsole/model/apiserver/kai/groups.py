"""Sub-groups of a pod group, and the resources of a queue (v2alpha2 podgroup_webhook, v2 queue_webhook)."""

from collections.abc import Iterator, Mapping

from gpuconsole.model.apiserver.jobs.parts import Document, at, entries
from gpuconsole.model.apiserver.volcano.objections import Objection

_GROUPS = ("spec", "subGroups")


def check_pod_group(group: Document) -> Iterator[Objection]:
    """Report the first error: a duplicate name, a missing parent, or a cycle of parents."""
    groups = list(entries(group, *_GROUPS))
    names = [str(at(found, "name") or "") for found in groups]
    for n, name in enumerate(names):
        if name in names[:n]:
            yield Objection((*_GROUPS, n, "name"), f"duplicate subgroup name {name}", "name it otherwise", "duplicate")
            return
    parents = {name: str(at(found, "parent") or "") for name, found in zip(names, groups, strict=True)}
    for n, (name, parent) in enumerate(parents.items()):
        if parent and parent not in parents:
            text = f"parent {parent} of {name} was not found"
            yield Objection((*_GROUPS, n, "parent"), text, f"define a sub-group {parent}", "undefined-sub-group")
            return
    for n, name in enumerate(names):
        if _is_in_cycle(name, parents):
            text = "cycle detected in subgroups"
            yield Objection((*_GROUPS, n, "parent"), text, "let one of them have no parent", "cycle")
            return


def _is_in_cycle(name: str, parents: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        name = parents.get(name, "")
    return bool(name)


def check_queue(queue: Document) -> Iterator[Objection]:
    """Validate that a queue states its resources, even if they are 0."""
    if at(queue, "spec", "resources") is None:
        text = "resources must be specified"
        yield Objection(("spec", "resources"), text, "give it gpu, cpu and memory, each with a quota", "required")
