"""volcano/scheduler_api: resource vectors, compared and computed with."""

from collections.abc import Callable, Sequence

from gpuconsole.model.resources import bounded
from gpuconsole.scheduling.volcano.api.resource import (
    INFINITY,
    ZERO,
    MissingAmount,
    Resource,
    common_names,
    without_ignored,
)
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano.objects import resource
from tests.conformance.world import amounts

Names = list[str]


def _two(case: Case) -> tuple[Resource, Resource]:
    return resource(case.input["resource1"]), resource(case.input["resource2"])


def _judges(judge: Callable[[Resource, Resource], object]) -> Check:
    """A table of two resources and a judgement."""

    def check(table: Table, case: Case) -> Sequence[str]:
        return [*compare("judgement", judge(*_two(case)), case.want["expected"])]

    return check


def _with(method: Callable[[Resource, Resource, MissingAmount], bool], default: MissingAmount) -> Check:
    return _judges(lambda left, right: method(left, right, default))


def _changes(change: Callable[[Resource, Resource], object]) -> Check:
    """A table of two resources and what becomes of the first."""

    def check(table: Table, case: Case) -> Sequence[str]:
        left, right = _two(case)
        change(left, right)
        return [*compare("resource", left, resource(case.want["expected"]))]

    return check


def _diff(default: MissingAmount) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        left, right = _two(case)
        wanted = (resource(case.want["expectedIncreased"]), resource(case.want["expectedDecreased"]))
        return [*compare("differences", left.diff(right, default), wanted)]

    return check


def _exceeding(default: MissingAmount) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        left, right = _two(case)
        return [*compare("names", sorted(left.exceeded_names(right, default)), sorted(case.want["expected"]))]

    return check


def _dimensions(method: Callable[[Resource, Resource, Resource], Names]) -> Check:
    """A table of two resources and a request that says which dimensions count; without one nothing does."""

    def check(table: Table, case: Case) -> Sequence[str]:
        asked = case.input.get("req")
        left, right = resource(case.input.get("r")), resource(case.input.get("rr"))
        names = sorted(method(left, right, resource(asked)))
        return [*compare("names", (bool(names), names), (case.want["wantBool"], sorted(case.want["wantNames"])))]

    return check


def _where_requested(table: Table, case: Case) -> Sequence[str]:
    left, right = _two(case)
    asked = case.input.get("req")
    names = sorted(
        left.exceeded_names(right) if asked is None else left.exceeded_requested_names(right, resource(asked))
    )
    wanted = (case.want["expectedFlag"], sorted(case.want["expectedResourceNames"]))
    return [*compare("names", (not names, names), wanted)]


def _greater_partly(table: Table, case: Case) -> Sequence[str]:
    names = resource(case.input["child"]).exceeded_names(resource(case.input["parent"]), INFINITY)
    wanted = (case.want["expectedExceeds"], sorted(case.want["expectedResources"]))
    return [*compare("names", (bool(names), sorted(names)), wanted)]


def _names(method: Callable[[Resource, Resource], Names]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        names = method(resource(case.input["r1"]), resource(case.input["r2"]))
        return [*compare("names", sorted(names), sorted(case.want["want"]))]

    return check


def _text(table: Table, case: Case) -> Sequence[str]:
    return [*compare("text", str(resource(case.input["resource"])), case.want["expected"])]


def _new(table: Table, case: Case) -> Sequence[str]:
    return [
        *compare(
            "resource", Resource.from_amounts(amounts(case.input["resourceList"])), resource(case.want["expected"])
        )
    ]


def _add_scalar(table: Table, case: Case) -> Sequence[str]:
    got = resource(case.input["resource"])
    got.add_scalar(case.input["scalarName"], case.input["scalarQuantity"])
    return [*compare("resource", got, resource(case.want["expected"]))]


def _saturating(table: Table, case: Case) -> Sequence[str]:
    """Counts of devices saturate at 64 bits, as all amounts do."""
    first, second = case.input["a"], case.input["b"]
    got = bounded(first * second if table.name.endswith("Mul") else first + second)
    return [*compare("count", got, case.want["want"])]


_A = "volcano/scheduler_api/"

CHECKS: dict[str, Check] = {
    _A + "TestAddResource": _changes(Resource.add),
    _A + "TestSubResource": _changes(Resource.sub),
    _A + "TestMinDimensionResourceZero": _changes(lambda left, right: left.set_min(right, ZERO)),
    _A + "TestMinDimensionResourceInfinity": _changes(lambda left, right: left.set_min(right, INFINITY)),
    _A + "TestLessEqual": _with(Resource.less_equal, ZERO),
    _A + "TestLessEqual_2": _with(Resource.less_equal, INFINITY),
    _A + "TestLessPartly": _with(Resource.is_less_in_any, ZERO),
    _A + "TestLessPartly_2": _with(Resource.is_less_in_any, INFINITY),
    _A + "TestDiff": _diff(ZERO),
    _A + "TestDiff_2": _diff(INFINITY),
    _A + "TestResource_LessEqualResource": _exceeding(ZERO),
    _A + "TestResource_LessEqualResource_2": _exceeding(INFINITY),
    _A + "TestLessEqualPartlyWithDimension": _dimensions(Resource.requested_names_within),
    _A + "TestLessEqualPartlyWithDimensionZeroFiltered": _dimensions(Resource.used_names_within),
    _A + "TestGreaterPartlyWithDimension": _dimensions(Resource.requested_names_above),
    _A + "TestGreaterPartlyWithRelevantDimensions": _dimensions(Resource.relevant_names_above),
    _A + "TestLessEqualWithDimensionAndResourcesName": _where_requested,
    _A + "TestResource_GreaterPartly": _greater_partly,
    _A + "TestIntersection": _names(common_names),
    _A + "TestIntersectionWithIgnoredScalarResources": _names(
        lambda left, right: without_ignored(common_names(left, right))
    ),
    _A + "TestResourceString": _text,
    _A + "TestNewResource": _new,
    _A + "TestResourceAddScalar": _add_scalar,
    _A + "TestSaturatingAdd": _saturating,
    _A + "TestSaturatingMul": _saturating,
}
