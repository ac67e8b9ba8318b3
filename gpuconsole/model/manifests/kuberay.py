"""Configuration of KubeRay's operator in manifests: the batch scheduler that places the pods of Ray clusters.

A Configuration of config.ray.io (also in a ConfigMap) takes precedence over the arguments of the operator's Deployment,
and those over the values of its Helm chart (KubeRay 1.6 ray-operator/main.go, apis/config/v1alpha1,
helm-chart/kuberay-operator).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.configurations import unwrapped
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.yamlsafe import FormError, YamlDocument, YamlPosition
from gpuconsole.model.jobs.ray_schedulers import CONFIGURED, DEFAULT_SCHEDULER, VOLCANO
from gpuconsole.model.manifests.kinds import kind_of_document

GROUP = "config.ray.io"
OPERATOR = (GROUP, "Configuration")
_CHART = "kuberay-operator"
_IMAGE = "kuberay/operator"
_NAME, _LEGACY = "--batch-scheduler", "--enable-batch-scheduler"


class OperatorConfiguration(Struct, frozen=True):
    """Settings of the operator in one document."""

    scheduler: str
    """Name of the batch scheduler in KubeRay; `default` for none."""
    rank: int
    """Precedence, the highest wins: Configuration 2, arguments 1, values 0."""


def configuration_in(place: Reader) -> OperatorConfiguration | None:
    """Return the configuration of KubeRay's operator in an object; None if it has none."""
    group, _, kind = kind_of_document(place.value)
    if (group, kind) == OPERATOR:
        return _checked(place, place.raw("batchScheduler"), place.raw("enableBatchScheduler"), "batchScheduler", 2)
    if (group, kind) == ("", "ConfigMap"):
        held = _held(place)
        return configuration_in(place.reporting(place.report, held)) if held is not None else None
    return _of_deployment(place) if (group, kind) == ("apps", "Deployment") else None


def configuration_of_values(place: Reader) -> OperatorConfiguration | None:
    """Return the configuration in the values of the operator's Helm chart, or of a chart that contains it; None if
    there is none.
    """
    inner = place.mapping(_CHART) if isinstance(place.raw(_CHART), dict) else place
    said = inner.raw("batchScheduler")
    if not isinstance(said, dict) or not said.keys() <= {"name", "enabled"}:
        return None
    values = inner.mapping("batchScheduler")
    # The chart writes no name where `enabled` is set.
    return _checked(values, "" if values.raw("enabled") else values.raw("name"), values.raw("enabled"), "name", 0)


def _held(place: Reader) -> Mapping[str, Any] | None:
    """Return the Configuration in a ConfigMap, or None."""
    try:
        tree = unwrapped(YamlDocument(place.value, YamlPosition(1, {})), lambda _, text: GROUP in text)
    except FormError:
        return None
    inner = tree.value
    found = isinstance(inner, dict) and inner is not place.value
    return inner if found and kind_of_document(inner)[::2] == OPERATOR else None


def _of_deployment(place: Reader) -> OperatorConfiguration | None:
    for container in place.down("spec", "template", "spec").items("containers", 100):
        args = [str(arg) for key in ("command", "args") for arg in _list(container.raw(key))]
        flags = {name: value for name, _, value in (arg.partition("=") for arg in args)}
        is_operator = _IMAGE in str(container.raw("image") or "") or _NAME in flags or _LEGACY in flags
        if is_operator and "--config" not in flags:
            legacy = flags.get(_LEGACY, "false") in ("", "true", "1", "t")
            return _checked(container, flags.get(_NAME, ""), legacy, "args", 1)
    return None


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _checked(place: Reader, name: object, legacy: object, key: str, rank: int) -> OperatorConfiguration | None:
    """Return the configuration; None if the operator would refuse it, which is reported
    (ValidateBatchSchedulerConfig).
    """
    name = str(name or "")
    if name and legacy:
        problem = "do not use both options together: batch-scheduler and enable-batch-scheduler"
        place.report.error(place.at(key), problem, "drop the old one, enable-batch-scheduler", "kuberay-scheduler")
        return None
    name = name or (VOLCANO if legacy else DEFAULT_SCHEDULER)
    if name not in CONFIGURED:
        problem = f"scheduler is not supported, name={name}: KubeRay's operator does not start"
        known = ", ".join(CONFIGURED)
        place.report.error(place.at(key), problem, f"write one of {known}", "kuberay-scheduler")
        return None
    return OperatorConfiguration(name, rank)
