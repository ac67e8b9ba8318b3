"""util_math, util_priority, util_resource: arithmetic of 64 bits, boosts and classes, names of resources."""

from collections.abc import Iterator

from gpuconsole.model.cluster import PriorityClass, default_class
from gpuconsole.model.documents.reader import is_extended
from gpuconsole.model.resources import amount, scale, subtract
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import effective_priority, priority_boost
from tests.conformance import world
from tests.conformance.tables import Case, Check, NotModelled, Table, compare


def check_value(table: Table, case: Case) -> Iterator[str]:
    """TestSafeValue: a quantity in base units, held to 64 bits."""
    yield from compare("want", amount("example.com/gpu", case.input["q"]), case.want["want"])


def check_product(table: Table, case: Case) -> Iterator[str]:
    """TestSaturatingMul: products saturate."""
    yield from compare("want", scale({"cpu": case.input["a"]}, case.input["b"])["cpu"], case.want["want"])


def check_difference(table: Table, case: Case) -> Iterator[str]:
    """TestSaturatingSub: differences saturate."""
    got = subtract({"cpu": case.input["a"]}, {"cpu": case.input["b"]})["cpu"]
    yield from compare("want", got, case.want["want"])


def check_boost(table: Table, case: Case) -> Iterator[str]:
    """TestPriorityBoost, TestParseEffectivePriority: what the annotation adds, or that it is no number."""
    workload, config = world.decode_workload(case.input["workload"]), KueueConfig(gates=case.gates)
    try:
        boost, failed = priority_boost(workload, config), False
    except ValueError:
        boost, failed = 0, True
    yield from compare("wantErr", failed, case.want["wantErr"])
    if "wantBoost" in case.want:
        yield from compare("wantBoost", boost, case.want["wantBoost"])
    else:
        yield from compare("wantPriority", effective_priority(workload, config), case.want["wantPriority"])


def check_priority(table: Table, case: Case) -> Iterator[str]:
    """TestPriority: the priority of the spec, or 0."""
    document = case.input["workload"]
    workload = world.decode_workload({**document, "metadata": {"name": "any", **(document.get("metadata") or {})}})
    yield from compare("want", workload.priority, case.want["want"])


def check_default(table: Table, case: Case) -> Iterator[str]:
    """TestGetPriorityFromPriorityClass: the class that holds where none is named."""
    listed = case.input["priorityClassList"].get("items") or ()
    classes = [thing for thing in world.decode_all(listed) if isinstance(thing, PriorityClass)]
    name = case.input["priorityClassName"]
    found = next(((known.value, known.name) for known in classes if known.name == name), None)
    if name and found is None:
        raise NotModelled("a PriorityClass that does not exist: the API server refuses the pod")
    value, chosen = found or default_class(classes)
    reference = case.want.get("wantPriorityClassRef") or {}
    yield from compare("wantPriorityClassRef", chosen, reference.get("name", ""))
    yield from compare("wantPriorityClassValue", value, case.want["wantPriorityClassValue"])


def check_extended(table: Table, case: Case) -> Iterator[str]:
    """TestIsExtendedResourceName: is it a device, of which there are whole numbers only?"""
    yield from compare("want", is_extended(case.input["name"]), case.want["want"])


CHECKS: dict[str, Check] = {
    "util_math/TestSafeValue": lambda table, case: list(check_value(table, case)),
    "util_math/TestSaturatingMul": lambda table, case: list(check_product(table, case)),
    "util_math/TestSaturatingSub": lambda table, case: list(check_difference(table, case)),
    "util_priority/TestGetPriorityFromPriorityClass": lambda table, case: list(check_default(table, case)),
    "util_priority/TestParseEffectivePriority": lambda table, case: list(check_boost(table, case)),
    "util_priority/TestPriority": lambda table, case: list(check_priority(table, case)),
    "util_priority/TestPriorityBoost": lambda table, case: list(check_boost(table, case)),
    "util_resource/TestIsExtendedResourceName": lambda table, case: list(check_extended(table, case)),
}
