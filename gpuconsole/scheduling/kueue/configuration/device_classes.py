"""Validates the mappings of device classes to quota resources (Kueue 0.19 validateDeviceClassMappings)."""

from collections.abc import Callable, Iterator

from gpuconsole.model.documents.findings import (
    FieldError,
    Path,
    duplicate,
    identifier,
    invalid,
    label,
    label_key,
    required,
    subdomain,
    too_long,
    too_many,
)
from gpuconsole.scheduling.devices.allocator import compile_error
from gpuconsole.scheduling.kueue.configuration.form import DeviceClassMappingForm, KueueConfigurationForm, SourceForm

MAX_MAPPINGS = 16
MAX_CLASSES = 8
MAX_NAME_LENGTH = 253
MAX_DRIVER_LENGTH = 63
MAX_DOMAIN_LENGTH = 63
MAX_IDENTIFIER_LENGTH = 32
ONE_SOURCE = "exactly one source type must be set per entry"
_ROOT: Path = ("resources", "deviceClassMappings")
Errors = Iterator[FieldError]
Enabled = Callable[[str], bool]


def validate_device_class_mappings(configuration: KueueConfigurationForm, enabled: Enabled) -> Errors:
    """Yield the errors in `resources.deviceClassMappings`."""
    mappings = () if configuration.resources is None else configuration.resources.device_class_mappings
    if len(mappings) > MAX_MAPPINGS:
        yield too_many(_ROOT, MAX_MAPPINGS)
    owners = _Owners()
    seen: set[str] = set()
    for number, mapping in enumerate(mappings):
        path = (*_ROOT, number)
        yield from _qualified(mapping.name, (*path, "name"))
        if mapping.name in seen:
            yield duplicate((*path, "name"))
        seen.add(mapping.name)
        yield from _classes(mapping, (*path, "deviceClassNames"), owners)
        yield from _sources(mapping, (*path, "sources"), enabled)


class _Owners:
    """Tracks the mapping of each class and its counters. Mutates."""

    def __init__(self) -> None:
        self._resources: dict[str, str] = {}
        self._counters: dict[str, set[str]] = {}

    def conflict(self, name: str, mapping: DeviceClassMappingForm) -> str:
        """Register a class of a mapping; return the error text, or empty if it is valid.

        Several mappings may share a class if their first sources are different counters.
        """
        counter = _counter(mapping)
        if name not in self._resources:
            self._resources[name] = mapping.name
            self._counters[name] = {counter} - {""}
            return ""
        if self._resources[name] == mapping.name:
            return ""
        counted = self._counters[name]
        if not counter or not counted:
            return f"device class already mapped to resource {self._resources[name]}"
        if counter in counted:
            return f'device class already has a counter source for counter "{counter}"'
        counted.add(counter)
        return ""


def _counter(mapping: DeviceClassMappingForm) -> str:
    first = mapping.sources[0].counter if mapping.sources else None
    return "" if first is None else first.name


def _qualified(name: str, path: Path) -> Errors:
    faults = label_key(name)
    if faults:
        yield invalid(path, "; ".join(faults))
    if len(name) > MAX_NAME_LENGTH:
        yield invalid(path, f"must not exceed {MAX_NAME_LENGTH} characters")


def _classes(mapping: DeviceClassMappingForm, path: Path, owners: _Owners) -> Errors:
    names = mapping.device_class_names
    if not names:
        yield required(path, "at least one device class name is required")
    if len(names) > MAX_CLASSES:
        yield too_many(path, MAX_CLASSES)
    seen: set[str] = set()
    for number, name in enumerate(names):
        place = (*path, number)
        yield from _qualified(name, place)
        if name in seen:
            yield duplicate(place)
        seen.add(name)
        conflict = owners.conflict(name, mapping)
        if conflict:
            yield invalid(place, conflict)


def _sources(mapping: DeviceClassMappingForm, path: Path, enabled: Enabled) -> Errors:
    kinds: set[str] = set()
    for number, source in enumerate(mapping.sources):
        place = (*path, number)
        if source.counter is None and source.capacity is None:
            yield required(place, ONE_SOURCE)
        elif source.counter is not None and source.capacity is not None:
            yield invalid(place, ONE_SOURCE)
        elif source.counter is not None:
            kinds.add("counter")
            yield from _counted(source.counter, (*place, "counter"), enabled)
        elif source.capacity is not None:
            kinds.add("capacity")
            yield from _shared(source.capacity, (*place, "capacity"), enabled)
    if len(kinds) > 1:
        yield invalid(path, "cannot mix counter and capacity sources in the same mapping")


def _counted(source: SourceForm, path: Path, enabled: Enabled) -> Errors:
    if not enabled("KueueDRAIntegrationPartitionableDevices"):
        yield invalid(path, "counter sources require KueueDRAIntegrationPartitionableDevices to be enabled")
        return
    faults = label(source.name)
    if not source.name:
        yield required((*path, "name"))
    elif faults:
        yield invalid((*path, "name"), ",".join(faults))
    yield from _devices(source, path)


def _shared(source: SourceForm, path: Path, enabled: Enabled) -> Errors:
    if not enabled("KueueDRAIntegrationConsumableCapacity"):
        yield invalid(path, "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled")
        return
    yield from _capacity_name(source.name, (*path, "name"))
    yield from _devices(source, path)


def _devices(source: SourceForm, path: Path) -> Errors:
    driver, place = source.driver, (*path, "driver")
    faults = subdomain(driver)
    if not driver:
        yield required(place)
    elif len(driver) > MAX_DRIVER_LENGTH:
        yield invalid(place, f"must not exceed {MAX_DRIVER_LENGTH} characters")
    elif faults:
        yield invalid(place, ",".join(faults))
    below = (*path, "deviceSelector", "cel", "expression")
    problem = compile_error(source.expression)
    if not source.expression:
        yield required(below)
    elif problem:
        yield invalid(below, f"CEL compilation failed: {problem}")


def _capacity_name(name: str, path: Path) -> Errors:
    """Validate a C identifier with an optional domain; as in Kubernetes, a name with more slashes is accepted."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(name, path)
    elif len(parts) == 2:
        yield from _domain(parts[0], path)
        if parts[1]:
            yield from _identifier(parts[1], path)
        else:
            yield invalid(path, "the name must not be empty")


def _domain(domain: str, path: Path) -> Errors:
    if not domain:
        yield invalid(path, "the domain must not be empty")
        return
    if len(domain) > MAX_DOMAIN_LENGTH:
        yield too_long(path, MAX_DOMAIN_LENGTH)
    for problem in subdomain(domain.lower()):
        yield invalid(path, problem)


def _identifier(text: str, path: Path) -> Errors:
    if len(text) > MAX_IDENTIFIER_LENGTH:
        yield too_long(path, MAX_IDENTIFIER_LENGTH)
    for problem in identifier(text):
        yield invalid(path, problem)
