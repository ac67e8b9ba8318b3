"""Converts Configurations from v1beta1 to v1beta2 (Kueue 0.19 apis/config/v1beta1 conversion)."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings
from gpuconsole.scheduling.kueue.config import BOTH
from gpuconsole.scheduling.kueue.configuration.form import GROUP, VERSION

_NO_LONGER = "v1beta2 does not have it; it is ignored"


def from_v1beta1(document: Mapping[str, Any], report: DocumentFindings) -> dict[str, Any]:
    """Convert a document: removed fields are dropped with a note, disabled fairSharing and waitForPodsReady without.

    The enabled sections get v1beta1's defaults.
    """
    plain = {**document, "apiVersion": f"{GROUP}/{VERSION}"}
    if plain.pop("queueVisibility", None) is not None:
        report.note(("queueVisibility",), _NO_LONGER, "use the visibility API", "old-field")
    integrations = plain.get("integrations")
    if isinstance(integrations, Mapping) and "podOptions" in integrations:
        report.note(("integrations", "podOptions"), _NO_LONGER, "use managedJobsNamespaceSelector", "old-field")
        plain["integrations"] = {name: value for name, value in integrations.items() if name != "podOptions"}
    sharing, ready = plain.pop("fairSharing", None), plain.pop("waitForPodsReady", None)
    if _is_enabled(sharing):
        plain["fairSharing"] = {"preemptionStrategies": [*BOTH], **_settings(sharing)}
    if _is_enabled(ready):
        plain["waitForPodsReady"] = {"timeout": "5m", "blockAdmission": True, **_settings(ready)}
    return plain


def _is_enabled(settings: object) -> bool:
    return isinstance(settings, Mapping) and settings.get("enable") is True


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "enable" and value != []}
