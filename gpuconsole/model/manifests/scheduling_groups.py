"""Pod groups of scheduling.k8s.io, and their validation by the API server (Kubernetes 1.35 to 1.37)."""

from collections.abc import Iterator

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.names import is_label_key, unique
from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.scheduling_groups import CompositePodGroup, SchedulingWorkload
from gpuconsole.model.volcano import PodGroup

MOST_GROUPS = 8
_DEEPEST = 4
"""Most levels of templates (Kubernetes 1.37: a hierarchy is at most four deep)."""
_POLICIES = ("basic", "gang")
_COMPOSITES = "compositePodGroupTemplates"


def kubernetes_workload(reader: Reader, now: Time) -> SchedulingWorkload:
    """Read a Workload: v1alpha1 lists `podGroups` with a `policy`, later versions `podGroupTemplates`."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    key = "podGroupTemplates" if "podGroupTemplates" in spec else "podGroups"
    if not spec.raw(key) and _COMPOSITES not in spec:
        spec.report.refused(spec.at(key), f"{key} is empty", "name at least one group of pods", "required")
    groups = {}
    names = []
    for place in spec.items(key, MOST_GROUPS):
        name = place.required("name")
        names.append(name)
        groups[name] = _policy(place, "policy" if key == "podGroups" else "schedulingPolicy")[1]
        _topology_key(place)
    unique(spec, key, names, "name")
    return SchedulingWorkload(**meta.facts, groups=groups | dict(_templates(spec, 1)))


def _templates(place: Reader, level: int) -> Iterator[tuple[str, int]]:
    """Yield name and minCount of the PodGroup templates below composite ones."""
    for composite in place.items(_COMPOSITES, MOST_GROUPS) if level < _DEEPEST else ():
        name = composite.required("name")
        _policy(composite, "schedulingPolicy", "minGroupCount")
        _topology_key(composite)
        if not composite.raw("podGroupTemplates") and not composite.raw(_COMPOSITES):
            composite.report.refused(
                composite.at("name"),
                f"{name} must have at least one child PodGroupTemplate or CompositePodGroupTemplate",
                "add podGroupTemplates to it",
                "required",
            )
        for child in composite.items("podGroupTemplates", MOST_GROUPS):
            _topology_key(child)
            yield child.required("name"), _policy(child, "schedulingPolicy")[1]
        yield from _templates(composite, level + 1)


def pod_group(reader: Reader, now: Time) -> PodGroup:
    """Read a PodGroup, the runtime object of v1alpha2 and later."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    policy, least = _policy(spec, "schedulingPolicy")
    return PodGroup(
        **meta.facts,
        min_member=least,
        policy=policy,
        topology_key=_topology_key(spec),
        parent_group=spec.text("parentCompositePodGroupName"),
    )


def composite_pod_group(reader: Reader, now: Time) -> CompositePodGroup:
    """Read a CompositePodGroup (v1alpha3 and later)."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    policy, least = _policy(spec, "schedulingPolicy", "minGroupCount")
    return CompositePodGroup(
        **meta.facts,
        policy=policy,
        min_groups=least,
        topology_key=_topology_key(spec),
        parent_group=spec.text("parentCompositePodGroupName"),
    )


def _topology_key(place: Reader) -> str:
    """Return the node label whose value all pods of a group must share; empty if there is none."""
    keys = [one.required("key") for one in place.mapping("schedulingConstraints").items("topology", 1)]
    key = keys[0] if keys else ""
    if key and not is_label_key(key):
        place.report.refused(
            place.mapping("schedulingConstraints").at("topology"),
            f"{shown(key)} is not a label key",
            "use the key of a node label, such as topology.kubernetes.io/zone",
            "bad-name",
        )
    return key


def _policy(place: Reader, key: str, count: str = "minCount") -> tuple[str, int]:
    """Return a group's policy, and how many of its pods or child groups start together: 1 under `basic`."""
    policy = place.mapping(key)
    given = [name for name in _POLICIES if name in policy or isinstance(policy.raw(name), dict)]
    if len(given) != 1:
        wanted = "must specify one of" if not given else "must specify exactly one of"
        said = ", ".join(f"`{name}`" for name in _POLICIES)
        place.report.refused(
            place.at(key), f"{wanted}: {said}", f"write basic: {{}}, or gang: {{{count}: 4}}", "required"
        )
    if "gang" not in given:
        return "basic", 1
    gang = policy.mapping("gang")
    if gang.raw(count) is None:
        gang.report.refused(gang.at(count), f"{count} is missing", "say how many start together", "required")
        return "gang", 1
    return "gang", gang.number(count, 1, low=1, high=INT32)
