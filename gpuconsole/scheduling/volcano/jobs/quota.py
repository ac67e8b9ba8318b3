"""Quota usage of pods, the form of minResources (Kubernetes' quota evaluator)."""

from collections.abc import Iterable

from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, add, scale

_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_HUGE = "hugepages-"


def quota_usage(template: PodTemplate) -> dict[str, int]:
    """Quota usage of one pod, in base units: `pods`, `count/pods`, `requests.cpu`, `limits.cpu` and plain names such as
    `cpu`.
    """
    usage = {"count/pods": 1, PODS: 1}
    for name, amount in template.requests.items():
        if name == PODS:
            continue
        if name in _NATIVE or name.startswith(_HUGE) or "/" in name:
            usage[f"requests.{name}"] = amount
            usage[name] = amount
    for name, amount in _limits(template).items():
        if name in _NATIVE:
            usage[f"limits.{name}"] = amount
    return usage


def _limits(template: PodTemplate) -> dict[str, int]:
    return add(*(container.limits for container in template.containers))


def needs(parts: Iterable[tuple[PodTemplate, int]]) -> dict[str, int]:
    """Total quota usage of this number of pods of each template; empty for no pods."""
    return add(*(scale(quota_usage(template), count) for template, count in parts if count > 0))
