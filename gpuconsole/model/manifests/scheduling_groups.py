"""Workload and PodGroup of scheduling.k8s.io, and the rules of the API server for them (Kubernetes 1.35 to 1.37)."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.scheduling_groups import SchedulingWorkload
from gpuconsole.model.volcano import PodGroup

MOST_GROUPS = 8
_POLICIES = ("basic", "gang")


def workload(reader: Reader, now: Time) -> SchedulingWorkload:
    """A Workload: v1alpha1 lists `podGroups` with a `policy`, later versions `podGroupTemplates`."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    key = "podGroupTemplates" if "podGroupTemplates" in spec else "podGroups"
    if not spec.raw(key) and "compositePodGroupTemplates" not in spec:
        spec.report.refused(spec.at(key), f"{key} is empty", "name at least one group of pods", "required")
    groups = {}
    names = []
    for place in spec.items(key, MOST_GROUPS):
        name = place.required("name")
        names.append(name)
        groups[name] = _least(place, "policy" if key == "podGroups" else "schedulingPolicy")
    unique(spec, key, names, "name")
    return SchedulingWorkload(**meta.facts, groups=groups)


def pod_group(reader: Reader, now: Time) -> PodGroup:
    """A PodGroup, the runtime object of v1alpha2 and later. Its topology constraints are not simulated."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    if "schedulingConstraints" in spec:
        spec.report.warning(
            spec.at("schedulingConstraints"),
            "topology constraints of pod groups are not simulated: its pods may get nodes anywhere",
            "expect nodes in one domain from kube-scheduler",
            "not-simulated",
        )
    return PodGroup(**meta.facts, min_member=_least(spec, "schedulingPolicy"))


def _least(place: Reader, key: str) -> int:
    """How many pods a policy wants to start together: the gang's minCount, one under `basic`."""
    policy = place.mapping(key)
    given = [name for name in _POLICIES if name in policy or isinstance(policy.raw(name), dict)]
    if len(given) != 1:
        wanted = "must specify one of" if not given else "must specify exactly one of"
        said = ", ".join(f"`{name}`" for name in _POLICIES)
        place.report.refused(place.at(key), f"{wanted}: {said}", "write basic: {}, or gang: {minCount: 4}", "required")
    if "gang" not in given:
        return 1
    gang = policy.mapping("gang")
    if gang.raw("minCount") is None:
        gang.report.refused(gang.at("minCount"), "minCount is missing", "say how many pods start together", "required")
        return 1
    return gang.number("minCount", 1, low=1, high=INT32)
