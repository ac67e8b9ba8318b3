"""Validates the MultiKueue part of a Configuration: timings, frameworks, providers and dispatcher."""

from collections.abc import Iterator

from gpuconsole.model.documents import field_errors as syntax
from gpuconsole.model.documents.field_errors import FieldError, duplicate, forbidden, invalid, required, unsupported
from gpuconsole.model.documents.findings import Path
from gpuconsole.scheduling.kueue.configuration.durations import parse
from gpuconsole.scheduling.kueue.configuration.form import KueueConfigurationForm
from gpuconsole.scheduling.kueue.configuration.frameworks import BUILT_IN, LOCAL_ONLY, parse_kind
from gpuconsole.scheduling.kueue.configuration.multikueue import (
    INCREMENTAL,
    AccessProvider,
    ClusterProfile,
    MultiKueueForm,
)

NEGATIVE = "must be greater than or equal to 0"
MODES = ("Never", "IfAvailable", "Always")
_ROOT: Path = ("multiKueue",)


def multi_kueue(configuration: KueueConfigurationForm) -> Iterator[FieldError]:
    """Yield the errors in `multiKueue`."""
    given = configuration.multi_kueue
    if given is None:
        return
    for name, duration in (("gcInterval", given.gc_interval), ("workerLostTimeout", given.worker_lost_timeout)):
        if duration is not None and parse(duration) < 0:
            yield invalid((*_ROOT, name), NEGATIVE)
    faults = [] if given.origin is None else syntax.label_value(given.origin)
    if faults:
        yield invalid((*_ROOT, "origin"), ",".join(faults))
    integrations = configuration.integrations
    yield from _frameworks(given, () if integrations is None else integrations.frameworks or ())
    if given.cluster_profile is not None:
        yield from _profile(given.cluster_profile)
    yield from _dispatcher(given)


def _frameworks(given: MultiKueueForm, enabled: tuple[str, ...]) -> Iterator[FieldError]:
    built_in = {BUILT_IN[name] for name in enabled if name in BUILT_IN and name not in LOCAL_ONLY}
    seen = set()
    for number, framework in enumerate(given.external_frameworks):
        kind, path = parse_kind(framework.name), (*_ROOT, "externalFrameworks", number, "name")
        if kind is None:
            yield invalid(path, "must be in 'kind.version.group' format")
            continue
        if kind in seen:
            yield duplicate(path)
        seen.add(kind)
        if kind in built_in:
            yield invalid(path, "conflicts with a built-in MultiKueue adapter")


def _profile(given: ClusterProfile) -> Iterator[FieldError]:
    path = (*_ROOT, "clusterProfile")
    if given.access_providers and given.credentials_providers:
        yield forbidden((*path, "credentialsProviders"), "must not be specified when accessProviders is specified")
    if given.access_providers:
        yield from _providers(given.access_providers, (*path, "accessProviders"))
    else:
        yield from _providers(given.credentials_providers, (*path, "credentialsProviders"))


def _providers(providers: tuple[AccessProvider, ...], path: Path) -> Iterator[FieldError]:
    """Validate access providers; as in Kueue, the field paths have no list indices."""
    below = (*path, "execConfig")
    for provider in providers:
        asked = provider.exec_config
        missing = [(*path, "name")] if not provider.name else []
        missing += [(*below, "command")] if not asked.command else []
        missing += [(*below, "apiVersion")] if not asked.api_version else []
        missing += [(*below, "env", "name") for variable in asked.env if not variable.name]
        missing += [(*below, "interactiveMode")] if not asked.interactive_mode else []
        yield from (required(place, "must be specified") for place in missing)
        if asked.interactive_mode and asked.interactive_mode not in MODES:
            yield unsupported((*below, "interactiveMode"), MODES)


def _dispatcher(given: MultiKueueForm) -> Iterator[FieldError]:
    steps, path = given.incremental_dispatcher_config, (*_ROOT, "incrementalDispatcherConfig")
    if steps is None:
        return
    if given.dispatcher_name != INCREMENTAL:
        only = "incrementalDispatcherConfig is only valid when dispatcherName is set to the incremental dispatcher"
        yield invalid(path, only)
    if steps.step_size is not None and steps.step_size < 1:
        yield invalid((*path, "stepSize"), "must be greater than or equal to 1")
