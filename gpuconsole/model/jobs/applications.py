"""SparkApplication (sparkoperator.k8s.io) and AppWrapper (workload.codeflare.dev).

A SparkApplication is a driver and its executors, counted as in Kueue 0.19 and Spark. An AppWrapper is several objects
that are admitted together, with pod counts as in Kueue 0.19.
"""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.jobs.applications import (
    SERVICES,
    PathError,
    WrappedPods,
    declared,
    inferred,
    kind_of,
    steps,
    template_at,
)
from gpuconsole.model.clock import Span, Time, parse_span
from gpuconsole.model.documents.pods_and_selectors import pod_template
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job, JobPhase, LaunchRules, ReplicaRules
from gpuconsole.model.jobs.common import MOST_PODS, job, pods, positive_span, topology_request
from gpuconsole.model.jobs.workloads import DURATION, QUEUE
from gpuconsole.model.pod_template import PodSet

DRIVER, EXECUTOR = "driver", "executor"
_CONTAINERS = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
_TYPES = ("Java", "Python", "R", "Scala")
_MODES = ("cluster", "client", "in-cluster-client")
_RESTARTS = ("Never", "OnFailure", "Always")
_JAVA_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}
COPIED = ("initContainers", "nodeSelector", "affinity", "tolerations", "priorityClassName")
"""Fields of a driver or executor that are copied to its pods."""
RULES = LaunchRules(deciders=(DRIVER,))
"""Rules of a SparkApplication: it ends when its driver ends."""
_DYNAMIC = "spark.dynamicAllocation."
_USUAL_EXECUTORS = 2
"""Spark's own default of spark.executor.instances on Kubernetes."""
_SPARK_PHASES: Mapping[str, JobPhase] = {
    "COMPLETED": JobPhase.SUCCEEDED,
    **dict.fromkeys(("FAILED", "SUBMISSION_FAILED"), JobPhase.FAILED),
    "RUNNING": JobPhase.RUNNING,
    "SUSPENDED": JobPhase.SUSPENDED,
}


def spark_application(reader: Reader, now: Time) -> Job:
    """Read a SparkApplication: it ends with its driver, and its executors are then removed.

    Resources are those that the operator requests for its pods: coreRequest, memory, gpu, sidecars. Pod templates only
    add labels and annotations (Kueue 0.19 sparkapplication_podset.go mutateSparkPod).
    """
    spec = reader.mapping("spec")
    spec.one_of("type", "", _TYPES)
    spec.one_of("mode", "cluster", _MODES)
    for role in (DRIVER, EXECUTOR):
        if role not in spec:
            spec.report.refused(spec.at(role), f"{role} is missing", f"describe the {role}", "required")
    suspended = spec.flag("suspend")
    restarts = spec.mapping("restartPolicy")
    repeats = restarts.one_of("type", "Never", _RESTARTS) == "OnFailure"
    state = _SPARK_PHASES.get(reader.down("status", "applicationState").text("state"))
    return job(
        reader,
        now,
        "SparkApplication",
        spark_pods(spec, queued=QUEUE in reader.down("metadata", "labels")),
        rules=RULES,
        suspended=suspended,
        backoff_limit=restarts.number("onFailureRetries", 0, low=0) if repeats else 0,
        phase=state or (JobPhase.SUSPENDED if suspended else JobPhase.PENDING),
    )


def spark_pods(spec: Reader, *, queued: bool) -> tuple[PodSet, PodSet]:
    """Return driver and executors of an application; `queued` means that Kueue counts the executors."""
    return _pod_set(spec, DRIVER, 1), _pod_set(spec, EXECUTOR, _executors(spec, queued=queued))


def _executors(spec: Reader, *, queued: bool) -> int:
    """Number of executors at the start; dynamic allocation's later requests depend on tasks, which are unknown here.

    Dynamic allocation starts with the maximum of instances, initialExecutors and minExecutors, limited by maxExecutors
    (Spark Utils.getDynamicAllocationInitialExecutors; Kueue numInitialExecutors). Without it and without instances,
    Kueue 0.19 counts none; without Kueue the operator sets 1 if there is a sparkConf, and Spark's default is 2.
    """
    dynamic, conf = spec.mapping("dynamicAllocation"), spec.mapping("sparkConf")
    instances = pods(spec.mapping(EXECUTOR), "instances", 0)
    said = "instances" in spec.mapping(EXECUTOR)
    if dynamic.flag("enabled") or conf.text(f"{_DYNAMIC}enabled").lower() == "true":
        own = instances if said else _number(conf, "spark.executor.instances")
        asked = [own or 0, *(_bound(dynamic, conf, name) or 0 for name in ("initialExecutors", "minExecutors"))]
        most = _bound(dynamic, conf, "maxExecutors")
        return max(asked) if most is None else min(max(asked), most)
    if said or queued:
        return instances
    return _number(conf, "spark.executor.instances") or (1 if "sparkConf" in spec else _USUAL_EXECUTORS)


def _bound(dynamic: Reader, conf: Reader, name: str) -> int | None:
    return pods(dynamic, name) if name in dynamic else _number(conf, f"{_DYNAMIC}{name}")


def _number(conf: Reader, key: str) -> int | None:
    """Read a numeric Spark property, which is a string; None if it is not a number."""
    text = conf.text(key)
    return min(int(text), MOST_PODS) if text.isascii() and text.isdecimal() else None


def _pod_set(spec: Reader, role: str, count: int) -> PodSet:
    place = spec.mapping(role)
    template = place.reporting(place.report, _template(spec.value, place.value, role))
    return PodSet(name=role, count=count, template=pod_template(template), topology=topology_request(template, count))


def _template(spec: Mapping[str, Any], said: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the pod template that Kueue builds for a driver or an executor."""
    requests = {"cpu": said.get("coreRequest"), "memory": _memory(said.get("memory"))}
    limits = {"cpu": said.get("coreLimit"), "memory": _memory(said.get("memoryLimit")), **_gpus(said.get("gpu"))}
    resources = {key: _given(part) for key, part in (("requests", requests), ("limits", limits)) if _given(part)}
    sidecars = said.get("sidecars")
    containers = [{"name": _CONTAINERS[role], "resources": resources}]
    pod: dict[str, Any] = {key: said[key] for key in COPIED if said.get(key) is not None}
    if "nodeSelector" not in pod and spec.get("nodeSelector") is not None:
        pod["nodeSelector"] = spec["nodeSelector"]
    pod["containers"] = [*containers, *(sidecars if isinstance(sidecars, list) else [])]
    pod["restartPolicy"] = "Never"
    return {"metadata": _metadata(said), "spec": pod}


def _metadata(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template's labels and annotations, overridden by those of the driver or executor itself."""
    template = said.get("template")
    base = template.get("metadata") if isinstance(template, dict) else None
    found = {}
    for key in ("labels", "annotations"):
        parts = (base.get(key) if isinstance(base, dict) else None, said.get(key))
        found[key] = {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
    return found


def _given(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _gpus(said: object) -> dict[str, Any]:
    """Return the GPU limit; empty without a name, or for a quantity of 0."""
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not said["name"]:
        return {}
    quantity = said.get("quantity")
    return {} if isinstance(quantity, int) and quantity <= 0 else {said["name"]: quantity}


def _memory(said: object) -> object:
    """Convert an amount in Java's units (`512m`, `2g`, `1gb`) to a quantity; other values stay as they are."""
    if not isinstance(said, str):
        return said
    lower = said.strip().lower()
    bare = lower.removesuffix("b")
    unit = _JAVA_UNITS.get(bare[-1:])
    return f"{bare[:-1]}{unit}" if unit is not None and bare[:-1].replace(".", "", 1).isdigit() else said


_APP_WRAPPER_PHASES: Mapping[str, JobPhase] = {
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
    "Suspended": JobPhase.SUSPENDED,
    "Running": JobPhase.RUNNING,
}


def app_wrapper(reader: Reader, now: Time) -> Job:
    """Read an AppWrapper: the pod sets of its components run together, as long as the longest of them.

    If all components are services, it runs until it is deleted.
    """
    spec = reader.mapping("spec")
    spec.only("components", "managedBy", "suspend")
    components = list(spec.items("components", 1000))
    name = reader.mapping("metadata").text("name")
    found = [(component, pods) for component in components for pods in _pods(component.value)]
    pod_sets = tuple(
        _wrapped_pod_set(component, pods, f"{name}-{number}") for number, (component, pods) in enumerate(found)
    )
    serves = bool(found) and all(kind_of(component.value) in SERVICES for component, _ in found)
    suspended = spec.flag("suspend")
    state = _APP_WRAPPER_PHASES.get(reader.mapping("status").text("phase"))
    return job(
        reader,
        now,
        "AppWrapper",
        pod_sets,
        rules=ReplicaRules() if serves else None,
        duration=_duration(reader, components),
        suspended=suspended,
        phase=state or (JobPhase.SUSPENDED if suspended else JobPhase.PENDING),
    )


def _pods(component: Mapping[str, Any]) -> list[WrappedPods]:
    """Return the readable pod sets of a component; declared ones take precedence over inferred ones."""
    try:
        known = declared(component) or inferred(component)
    except PathError:
        return []
    return [pods for pods in known if _is_there(component, pods.path)]


def _is_there(component: Mapping[str, Any], path: str) -> bool:
    try:
        template_at(component, path)
    except PathError:
        return False
    return True


def _wrapped_pod_set(component: Reader, pods: WrappedPods, name: str) -> PodSet:
    place, count = _place(component, pods.path), min(pods.replicas, MOST_PODS)
    request = topology_request(place, count, index=pods.index, subgroup=pods.subgroup, subgroups=pods.subgroups)
    return PodSet(name=name, count=count, template=pod_template(place), topology=request)


def _place(component: Reader, path: str) -> Reader:
    place = component
    for key in steps(path):
        value = place.value[key]
        place = Reader(value, place.report, place, key)
    return place


def _duration(reader: Reader, components: list[Reader]) -> Span | None:
    """Return the duration: its own annotation, else the longest of its components'; None if there is none."""
    own = positive_span(reader.down("metadata", "annotations"), DURATION)
    if own is not None:
        return own
    spans = []
    for component in components:
        text = component.down("template", "metadata", "annotations").text(DURATION)
        try:
            spans.append(parse_span(text))
        except ValueError:
            continue
    return max((span for span in spans if span > 0), default=None)
