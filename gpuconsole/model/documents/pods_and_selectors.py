"""Pod templates, selectors, taints, tolerations and affinity in documents.

What the API server would refuse is reported. `parse_taint` reads kubectl's notation, `key=value:Effect`, by the rules
for taints of nodes.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from gpuconsole.errors import InputError
from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.documents.findings import SUBDOMAIN, Silence
from gpuconsole.model.documents.metadata import (
    LONGEST_KEY,
    LONGEST_LABEL,
    annotations,
    is_label_key,
    is_label_value,
    key_name,
    labels,
    unique,
)
from gpuconsole.model.documents.reader import INT32, Reader, fractions, is_extended, resources, shown
from gpuconsole.model.labels import LabelSelector, NodeTerm, PreferredTerm, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import (
    Container,
    HostPort,
    PodAffinity,
    PodClaim,
    PodResources,
    PodTemplate,
    PodTerm,
    PodVolume,
    SpreadConstraint,
)
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.text import MAX_NAME, clean

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
EFFECTS: tuple[Effect, ...] = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SETS = ("In", "NotIn", "Exists", "DoesNotExist")


def requirements(reader: Reader, key: str, operators: tuple[str, ...] = _SETS) -> tuple[Requirement, ...]:
    """Read the expressions of a selector under `key`; `operators` are the valid ones."""
    return tuple(_requirement(place, operators) for place in reader.items(key))


def _requirement(place: Reader, operators: tuple[str, ...]) -> Requirement:
    operator = place.one_of("operator", "", operators)
    values = place.texts("values")
    if not operator:
        place.required("operator")
    elif operator in ("In", "NotIn") and not values:
        place.report.refused(
            place.at("values"), f"operator {operator} has no values", "name at least one value", "no-values"
        )
    elif operator in ("Exists", "DoesNotExist") and values:
        place.report.refused(
            place.at("values"), f"operator {operator} takes no values", "leave the values out", "needless-values"
        )
    return Requirement(place.required("key"), operator, values)


def selector(reader: Reader, key: str) -> LabelSelector | None:
    """Read a label selector; None (absent or null) selects nothing, an empty mapping selects everything."""
    if key not in reader:
        return None
    place = reader.mapping(key)
    place.only("matchLabels", "matchExpressions")
    return LabelSelector(labels(place, "matchLabels"), requirements(place, "matchExpressions"))


def taints(reader: Reader, key: str) -> tuple[Taint, ...]:
    """Read the taints under `key`; duplicates by key and effect are reported."""
    found = tuple(_taint(place) for place in reader.items(key))
    unique(reader, key, [f"{taint.key}:{taint.effect}" for taint in found])
    return found


def _taint(place: Reader) -> Taint:
    value = place.text("value")
    if not is_label_value(value):
        place.report.refused(
            place.at("value"),
            f"{shown(value)} is not a valid value of a taint",
            "write it as a label's value",
            "bad-label",
        )
    return Taint(key_name(place, "key", required=True), value, place.one_of("effect", "", EFFECTS) or _effect(place))


def _effect(place: Reader) -> str:
    place.required("effect")
    return "NoSchedule"


def tolerations(reader: Reader, key: str, *, checked: bool = True) -> tuple[Toleration, ...]:
    """Read the tolerations under `key`; `checked` adds the API server's rules for pods and flavors."""
    return tuple(_toleration(place, checked) for place in reader.items(key))


def _toleration(place: Reader, checked: bool) -> Toleration:
    found = Toleration(
        place.text("key", limit=LONGEST_KEY),
        place.text("operator") or "Equal",
        place.text("value"),
        place.text("effect"),
        place.optional("tolerationSeconds", low=-(2**63), high=2**63 - 1),
    )
    if checked:
        _check_toleration(place, found.key, found.operator, found.value, found.seconds)
    return found


def _check_toleration(place: Reader, name: str, operator: str, value: str, seconds: int | None) -> None:
    key_name(place, "key")
    place.one_of("operator", "Equal", ("Equal", "Exists"))
    effect = place.one_of("effect", "", EFFECTS)
    if not name and operator != "Exists":
        place.report.refused(
            place.at("operator"),
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            "name a key, or write operator: Exists",
            "bad-toleration",
        )
    if operator == "Exists" and value:
        place.report.refused(
            place.at("value"), "a value must be empty when 'operator' is 'Exists'", "drop it", "bad-toleration"
        )
    if seconds is not None and effect != "NoExecute":
        place.report.refused(
            place.at("tolerationSeconds"),
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            "write effect: NoExecute, or drop tolerationSeconds",
            "bad-toleration",
        )


def node_term(place: Reader) -> NodeTerm:
    """Read a node selector term."""
    operators = (*_SETS, "Gt", "Lt")
    return NodeTerm(requirements(place, "matchExpressions", operators), requirements(place, "matchFields", operators))


def node_affinity(spec: Reader) -> tuple[tuple[NodeTerm, ...] | None, tuple[PreferredTerm, ...]]:
    """Read the required and the preferred node affinity of a pod spec."""
    place = spec.down("affinity", "nodeAffinity")
    required = None
    if "requiredDuringSchedulingIgnoredDuringExecution" in place:
        terms = place.mapping("requiredDuringSchedulingIgnoredDuringExecution")
        required = tuple(node_term(term) for term in terms.items("nodeSelectorTerms"))
    preferred = tuple(
        PreferredTerm(item.number("weight", 1, low=1, high=100), node_term(item.mapping("preference")))
        for item in place.items("preferredDuringSchedulingIgnoredDuringExecution")
    )
    return required, preferred


def pod_affinity(spec: Reader, key: str) -> PodAffinity | None:
    """Read podAffinity or podAntiAffinity of a pod spec; None if it has no terms."""
    place = spec.down("affinity", key)
    required = tuple(_pod_term(term) for term in place.items("requiredDuringSchedulingIgnoredDuringExecution"))
    preferred = tuple(
        (item.number("weight", 1, low=1, high=100), _pod_term(item.mapping("podAffinityTerm")))
        for item in place.items("preferredDuringSchedulingIgnoredDuringExecution")
    )
    return PodAffinity(required, preferred) if required or preferred else None


def _pod_term(place: Reader) -> PodTerm:
    return PodTerm(
        place.required("topologyKey"),
        selector(place, "labelSelector"),
        place.texts("namespaces"),
        selector(place, "namespaceSelector"),
        place.texts("matchLabelKeys"),
        place.texts("mismatchLabelKeys"),
    )


GRACE = 30
"""Default grace period of a pod in seconds."""
MOST_CONTAINERS = 1_000
LARGEST = 16_384
"""Largest spec in bytes that is cached; larger ones are rarely repeated."""
ENCODER = msgspec.json.Encoder()
_OWN = ("nodeName", "hostname")
"""Fields in which otherwise equal pods differ."""


def pod_template(reader: Reader, *, checked: bool = True) -> PodTemplate:
    """Read a pod, or a pod template.

    `checked` adds the API server's rules for pods; it does not apply them to the copies in Workloads.
    """
    meta, spec = reader.mapping("metadata"), reader.mapping("spec")
    own = {"labels": labels(meta), "annotations": annotations(meta), "hostname": spec.text("hostname")}
    known = None if spec.report.is_recorded else _known_template(spec.value, checked)
    return replace(known or _template(spec, checked), **own)


def _known_template(spec: Mapping[str, Any], checked: bool) -> PodTemplate | None:
    """Return the template of a spec, from the cache if an equal one was read; None if it cannot be cached."""
    try:
        said = ENCODER.encode({key: value for key, value in spec.items() if key not in _OWN})
    except (TypeError, ValueError, OverflowError):
        # It is not JSON.
        return None
    return _read(said, checked) if len(said) <= LARGEST else None


@lru_cache(4096)
def _read(spec: bytes, checked: bool) -> PodTemplate:
    return _template(Reader(msgspec.json.decode(spec), Silence()), checked)


def _template(spec: Reader, checked: bool) -> PodTemplate:
    """Read a spec, except for the fields of the individual pod."""
    required, preferred = node_affinity(spec)
    group, workload = _scheduling_group(spec)
    return PodTemplate(
        containers=_containers(spec, "containers", checked),
        init_containers=_containers(spec, "initContainers", checked),
        resources=_pod_resources(spec),
        overhead=resources(spec, "overhead"),
        node_selector=labels(spec, "nodeSelector") if checked else spec.labels("nodeSelector"),
        affinity=required,
        preferred=preferred,
        tolerations=tolerations(spec, "tolerations", checked=checked),
        priority_class=spec.text("priorityClassName"),
        priority=spec.optional("priority"),
        preemption_policy=spec.one_of("preemptionPolicy", "", ("Never", "PreemptLowerPriority")),
        restart_policy=spec.one_of("restartPolicy", "", ("Always", "OnFailure", "Never")),
        active_deadline=_seconds(spec, "activeDeadlineSeconds"),
        grace_period=spec.number("terminationGracePeriodSeconds", GRACE, low=0, high=INT32) * SECOND,
        scheduler_name=spec.text("schedulerName") or "default-scheduler",
        scheduling_gates=tuple(gate.text("name") for gate in spec.items("schedulingGates")),
        runtime_class=spec.text("runtimeClassName"),
        subdomain=spec.text("subdomain"),
        scheduling_group=group,
        scheduling_workload=workload,
        resource_claims=tuple(_claim(place) for place in spec.items("resourceClaims")),
        volumes=tuple(_volumes(spec)),
        local_volumes=tuple(place.text("name") for place in spec.items("volumes") if _is_local(place)),
        spread=tuple(_spread(place) for place in spec.items("topologySpreadConstraints")),
        pod_affinity=pod_affinity(spec, "podAffinity"),
        pod_anti_affinity=pod_affinity(spec, "podAntiAffinity"),
    )


def _seconds(spec: Reader, key: str) -> Span | None:
    seconds = spec.optional(key)
    return None if seconds is None or seconds < 0 else seconds * SECOND


def _scheduling_group(spec: Reader) -> tuple[str, str]:
    """Return the PodGroup and `WORKLOAD/GROUP` of a pod, from `schedulingGroup` or `workloadRef` (v1alpha1)."""
    if "workloadRef" not in spec:
        return spec.mapping("schedulingGroup").text("podGroupName"), ""
    place = spec.mapping("workloadRef")
    workload, group, replica = place.required("name"), place.required("podGroup"), place.text("podGroupReplicaKey")
    return "-".join(filter(None, (workload, group, replica))), f"{workload}/{group}"


def _pod_resources(spec: Reader) -> PodResources | None:
    place = spec.mapping("resources")
    return PodResources(resources(place, "requests"), resources(place, "limits")) if place.value else None


def _containers(spec: Reader, key: str, checked: bool) -> tuple[Container, ...]:
    host_network = spec.flag("hostNetwork")
    found = tuple(_container(place, checked, host_network) for place in spec.items(key, MOST_CONTAINERS))
    absent = spec.raw(key) is None and bool(spec.value)
    if key == "containers" and (absent or (checked and not spec.raw(key))):
        spec.report.refused(spec.at(key), "a pod needs at least one container", "add a container", "required")
    if checked:
        unique(spec, key, [container.name for container in found], "name")
    return found


def _container(place: Reader, checked: bool, host_network: bool) -> Container:
    needs = place.mapping("resources")
    container = Container(
        name=place.required("name") if checked or "name" not in place else place.text("name"),
        image=place.text("image", limit=1000),
        requests=resources(needs, "requests"),
        limits=resources(needs, "limits"),
        sidecar=place.text("restartPolicy") == "Always",
        fractions=fractions(needs, "requests"),
        ports=tuple(_host_ports(place, host_network)),
    )
    if checked:
        _check_requests(needs, container)
    return container


def _host_ports(place: Reader, host_network: bool) -> Iterator[HostPort]:
    """Yield the host ports; with hostNetwork these are all ports of the container (the API server's defaulting)."""
    for port in place.items("ports"):
        number = port.number("hostPort", 0, low=0, high=65535)
        number = number or (port.number("containerPort", 0, low=0, high=65535) if host_network else 0)
        if number:
            yield HostPort(number, port.text("protocol") or "TCP", port.text("hostIP") or "0.0.0.0")


def _claim(place: Reader) -> PodClaim:
    return PodClaim(place.text("name"), place.text("resourceClaimTemplateName"), place.text("resourceClaimName"))


def _volumes(spec: Reader) -> Iterator[PodVolume]:
    """Yield the volumes with a claim; others do not restrict where a pod runs."""
    for place in spec.items("volumes"):
        own = place.down("ephemeral", "volumeClaimTemplate", "spec")
        if "persistentVolumeClaim" in place:
            yield PodVolume(name=place.text("name"), claim=place.mapping("persistentVolumeClaim").required("claimName"))
        elif "ephemeral" in place:
            yield PodVolume(
                name=place.text("name"),
                storage_class=own.text("storageClassName") if "storageClassName" in own else None,
                storage=resources(own.mapping("resources"), "requests").get("storage", 0),
                access_modes=own.texts("accessModes"),
            )


def _is_local(place: Reader) -> bool:
    """True for a volume on the node's disk, not in memory (as in the Cluster Autoscaler)."""
    return "hostPath" in place or ("emptyDir" in place and place.mapping("emptyDir").text("medium") != "Memory")


def _check_requests(needs: Reader, container: Container) -> None:
    """Check that requests do not exceed limits, and are equal for devices (k8s.io/kubernetes validation of
    containers).
    """
    for resource, amount in container.requests.items():
        limit = container.limits.get(resource)
        asked = format_quantity(resource, amount)
        if is_extended(resource) and limit is None:
            needs.report.refused(
                needs.at("requests", resource),
                f"{resource} is requested without a limit: devices cannot be overcommitted",
                f"write {resource}: {asked} under limits as well",
                "device-limit",
            )
        elif is_extended(resource) and limit != amount:
            needs.report.refused(
                needs.at("requests", resource),
                f"{resource}: {asked} requested, but limited to {format_quantity(resource, limit or 0)}",
                f"requests must be equal to limits for {resource}",
                "device-limit",
            )
        elif limit is not None and amount > limit:
            needs.report.refused(
                needs.at("requests", resource),
                f"{resource}: {asked} requested is more than the limit {format_quantity(resource, limit)}",
                "must be less than or equal to the limit",
                "request-over-limit",
            )


def _spread(place: Reader) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=place.required("topologyKey"),
        max_skew=place.number("maxSkew", 1, low=1),
        when_unsatisfiable=place.one_of("whenUnsatisfiable", "DoNotSchedule", ("DoNotSchedule", "ScheduleAnyway")),
        selector=selector(place, "labelSelector"),
        min_domains=place.optional("minDomains", low=1),
        honors_affinity=place.one_of("nodeAffinityPolicy", "Honor", ("Honor", "Ignore")) == "Honor",
        honors_taints=place.one_of("nodeTaintsPolicy", "Ignore", ("Honor", "Ignore")) == "Honor",
        match_label_keys=place.texts("matchLabelKeys"),
    )


FORM = "key=value:Effect or key:Effect, such as dedicated=ml:NoSchedule"
"""Notation of a taint, for messages."""


class TaintError(InputError):
    """The string is not a taint, or the API server would refuse the taint."""


def parse_taint(text: str) -> Taint:
    """Parse `key=value:Effect` or `key:Effect` (kubectl taint: parseTaint). Raises TaintError."""
    head, colon, effect = text.strip().partition(":")
    if not colon or ":" in effect:
        raise TaintError(f"{_shown(text)} is not a taint; write {FORM}")
    key, _, value = head.partition("=")
    taint = Taint(key, value, effect)
    if problem := taint_problem(taint):
        raise TaintError(problem)
    return taint


def format_taint(taint: Taint) -> str:
    """Format a taint as kubectl does: `key=value:Effect`, or `key:Effect` without a value."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def taint_problem(taint: Taint) -> str:
    """Return why the API server refuses a taint of a node; empty if valid (core/v1 validation validateNodeTaints)."""
    if not taint.key:
        return "the key of a taint cannot be empty"
    if not _is_qualified(taint.key):
        return (
            f"{_shown(taint.key)} is not a valid key of a taint: an optional domain and '/', "
            f"then at most {LONGEST_LABEL} letters, digits, '-', '_' and '.'"
        )
    if not is_label_value(taint.value):
        return (
            f"{_shown(taint.value)} is not a valid value of a taint: at most {LONGEST_LABEL} letters, digits, "
            "'-', '_' and '.', with a letter or digit first and last"
        )
    if taint.effect not in EFFECTS:
        return f"{_shown(taint.effect)} is not an effect of a taint; write {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}"
    return ""


def effect_of(taint: Taint) -> Effect:
    """Return the effect of a validated taint."""
    return cast("Effect", taint.effect)


def _is_qualified(key: str) -> bool:
    """True for a qualified name (k8s.io/apimachinery IsQualifiedName), with or without a domain and a slash."""
    domain, slash, _ = key.rpartition("/")
    if slash and (len(domain) > MAX_NAME or not SUBDOMAIN.fullmatch(domain)):
        return False
    return is_label_key(key)


def _shown(text: str) -> str:
    return f"'{clean(text, 80)}'"
