"""PodDisruptionBudget (policy/v1), by the API server's rules."""

import re

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import PodDisruptionBudget
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.documents.selectors import selector

_AMOUNT = re.compile(r"[0-9]{1,9}|[0-9]{1,3}%")


def pod_disruption_budget(reader: Reader, now: Time) -> PodDisruptionBudget:
    """Read a PodDisruptionBudget: its pod selector, and minAvailable or maxUnavailable."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    spec.only("selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy")
    least, most = _amount(spec, "minAvailable"), _amount(spec, "maxUnavailable")
    if least and most:
        problem = "minAvailable and maxUnavailable cannot be both set"
        spec.report.refused(spec.at("maxUnavailable"), problem, "leave one of them out", "both-set")
    return PodDisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=selector(spec, "selector"),
        min_available=least,
        max_unavailable=most,
    )


def _amount(spec: Reader, key: str) -> str:
    """Read a number of pods or a percentage, as text; empty if it is missing or invalid."""
    raw = spec.raw(key)
    if raw is None:
        return ""
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 10**9 else spec.text(key)
    if _AMOUNT.fullmatch(text):
        return text
    problem = f"{shown(text)} is neither a number of pods nor a part of them"
    spec.report.error(spec.at(key), problem, 'write it as 1 or "50%"', "bad-value")
    return ""
