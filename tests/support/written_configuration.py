"""Writes a Configuration as Kueue does: without empty fields, except those that Kueue always writes."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from gpuconsole.scheduling.kueue.configuration.form import (
    AccessProvider,
    AdmissionFairSharingForm,
    CustomLabel,
    FairSharingForm,
    KueueConfigurationForm,
    LeaderElection,
    MultiKueueForm,
    WaitForPodsReadyForm,
)

ALWAYS: Mapping[type[Struct], tuple[str, ...]] = {
    WaitForPodsReadyForm: ("timeout",),
    FairSharingForm: ("preemption_strategies",),
    AdmissionFairSharingForm: ("usage_half_life_time", "usage_sampling_interval"),
    KueueConfigurationForm: ("api_version", "kind", "webhook", "metrics", "health", "manage_jobs_without_queue_name"),
    AccessProvider: ("name", "exec_config"),
    MultiKueueForm: ("gc_interval",),
    LeaderElection: (
        "leader_elect",
        "lease_duration",
        "renew_deadline",
        "retry_period",
        "resource_lock",
        "resource_name",
        "resource_namespace",
    ),
    CustomLabel: ("name",),
}
"""Fields that Kueue writes even if they are empty."""


def as_document(configuration: KueueConfigurationForm) -> dict[str, Any]:
    """Return the Configuration as a mapping for YAML or JSON, which `reading.read_kueue_configuration` accepts."""
    return _mapping(configuration)


def _mapping(form: Struct) -> dict[str, Any]:
    always = ALWAYS.get(type(form), ())
    found: dict[str, Any] = {}
    for field in structs.fields(form):
        value = getattr(form, field.name)
        if field.name in always or not (value is None or value in ("", (), {}) or _is_off(value, field.default)):
            found[field.encode_name] = _plain(value)
    return found


def _is_off(value: object, default: object) -> bool:
    """True for a flag that is off by default and off: it is omitted; optional flags are written even if false."""
    return value is False and default is False


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return _mapping(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
