"""resources: amounts and vectors of amounts, as the engine adds, compares and writes them.

Kueue has two kinds of vectors, a map and a sorted slice; here both are a mapping in the slice's order (`ordered`).
"""

from collections.abc import Callable, Iterator
from typing import Any

from gpuconsole.model.resources import (
    MAX,
    Resources,
    add,
    amount,
    count_in,
    divide,
    exceeding,
    format_quantity,
    not_negative,
    scale,
    subtract,
)
from gpuconsole.scheduling.kueue.pod_resources import in_kueue_order
from tests.conformance import world
from tests.conformance.tables import Case, Check, Table, compare


def _vector(case: Case, name: str) -> dict[str, int]:
    return in_kueue_order(case.input.get(name) or {})


def _wanted(case: Case) -> Any:
    return case.want.get("want") or {}


def check_quantity(table: Table, case: Case) -> Iterator[str]:
    """TestAmountFromQuantity: the largest amount stands for more than can be counted."""
    got = amount(case.input["resource"], case.input["quantity"])
    yield from compare("unlimited", got == MAX, case.want["wantUnlimited"])
    if not case.want["wantUnlimited"]:
        yield from compare("wantValue", got, case.want["wantValue"])


def check_clamped(table: Table, case: Case) -> Iterator[str]:
    """TestResourceValueClampsOutsideInt64: amounts in base units, held to 64 bits."""
    yield from compare("want", amount(case.input["resource"], case.input["quantity"]), case.want["want"])


def check_text(table: Table, case: Case) -> Iterator[str]:
    """TestResourceQuantityRoundTrips: an amount as Kubernetes writes it, and read again."""
    resource, value = case.input["resource"], case.input["value"]
    text = format_quantity(resource, value)
    yield from compare("expected", text, case.want["expected"])
    yield from compare("read again", amount(resource, text), value)


def check_count(table: Table, case: Case) -> Iterator[str]:
    """TestCountIn, TestCountInWithLimitingResource, TestSliceRequests_CountIn: how often requests fit."""
    requests = _vector(case, "requests" if "requests" in table.document["caseFields"] else "request")
    count, scarcest = count_in(requests, _vector(case, "capacity"))
    counts = ("wantResult", "wantCount", "wantCnt")
    yield from compare("count", count, next(case.want[name] for name in counts if name in case.want))
    for name in ("wantLimitingResource", "wantRes"):
        if name in case.want:
            yield from compare(name, scarcest, case.want[name])


def check_sum(table: Table, case: Case) -> Iterator[str]:
    """TestSliceRequests_AddAndSub, TestSliceRequests_SaturationMatchesMapRequests: sums and differences saturate."""
    first, second = ("base", "operand") if "op" in table.document["caseFields"] else ("start", "other")
    minus = case.input.get("op") == "sub" or bool(case.input.get("sub"))
    got = (subtract if minus else add)(_vector(case, first), _vector(case, second))
    yield from compare("want", got, _wanted(case))


def check_scaled(operation: Callable[[Resources, int], Resources], factor: str) -> Check:
    """TestSliceRequests_ScaledUp, _ScaledDown, _Mul, _Divide: needs of several pods, and of one of them."""
    return lambda table, case: list(compare("want", operation(_vector(case, "req"), case.input[factor]), _wanted(case)))


def check_floor(table: Table, case: Case) -> Iterator[str]:
    """TestFloorToZero: nobody asks for less than nothing."""
    yield from compare("want", not_negative(_vector(case, "requests")), _wanted(case))


def check_greater(table: Table, case: Case) -> Iterator[str]:
    """TestGreaterKeys, TestSliceRequests_GreaterKeys: of which resources there is more than the bound."""
    first, second = ("a", "b") if "a" in table.document["caseFields"] else ("req", "other")
    yield from compare("want", exceeding(_vector(case, first), _vector(case, second)), case.want.get("want") or [])


def check_greater_quantities(table: Table, case: Case) -> Iterator[str]:
    """TestGreaterKeysRL, TestSliceRequests_GreaterKeysRL: the same for bounds that are quantities."""
    bounds = world.amounts(case.input.get("rl") or {})
    yield from compare("want", exceeding(_vector(case, "req"), bounds), case.want.get("want") or [])


def check_look_up(table: Table, case: Case) -> Iterator[str]:
    """TestMapRequestsGetValue, TestSliceRequests_GetValue: what is not named is not asked for."""
    resource = case.input["resource" if "resource" in table.document["caseFields"] else "res"]
    yield from compare("want", _vector(case, "req").get(resource, 0), case.want["want"])


def check_size(table: Table, case: Case) -> Iterator[str]:
    """TestMapRequestsLen, TestMapRequestsIsEmpty, TestSliceRequests_LenAndIsEmpty: how many resources are named."""
    vector = _vector(case, "req")
    for name, want in case.want.items():
        yield from compare(name, not vector if isinstance(want, bool) else len(vector), want)


def check_equal(table: Table, case: Case) -> Iterator[str]:
    """TestRequestsEqual: the order of resources does not matter; no vector is not an empty one."""
    first, second = (in_kueue_order(case.input[n]) if case.input.get(n) is not None else None for n in ("a", "b"))
    yield from compare("want", first == second, case.want["want"])


def check_same(name: str) -> Check:
    """TestToMap, TestSliceRequests_Conversion, _Clone: putting resources in order keeps every amount, zeros too."""
    return lambda table, case: list(compare("want", _vector(case, name), _wanted(case)))


def check_set(table: Table, case: Case) -> Iterator[str]:
    """TestMapRequestsSet, TestSliceRequests_Set: one amount is added or replaced."""
    given = case.input
    changes = given.get("sets") or [{"name": given["setKey"], "val": given["setValue"]}]
    changed = in_kueue_order(
        {
            **_vector(case, "req" if "req" in table.document["caseFields"] else "initial"),
            **{c["name"]: c["val"] for c in changes},
        }
    )
    yield from compare("want", changed, _wanted(case))


def check_lazy(table: Table, case: Case) -> Iterator[str]:
    """TestLazyRequests: a vector from which nothing is taken is not copied."""
    base = _vector(case, "base")
    result = subtract(base, {})
    yield from compare("wantResult", result, case.want.get("wantResult") or {})
    yield from compare("wantCachedCreated", result is not base, case.want["wantCachedCreated"])
    yield from compare("wantEmpty", not result, case.want["wantEmpty"])


def check_written(table: Table, case: Case) -> Iterator[str]:
    """TestSliceRequests_ToResourceList: every amount as a quantity."""
    got = {name: format_quantity(name, value) for name, value in _vector(case, "req").items()}
    yield from compare("want", got, _wanted(case))


CHECKS: dict[str, Check] = {
    "resources/TestAmountFromQuantity": lambda table, case: list(check_quantity(table, case)),
    "resources/TestCountIn": lambda table, case: list(check_count(table, case)),
    "resources/TestCountInWithLimitingResource": lambda table, case: list(check_count(table, case)),
    "resources/TestFloorToZero": lambda table, case: list(check_floor(table, case)),
    "resources/TestGreaterKeys": lambda table, case: list(check_greater(table, case)),
    "resources/TestGreaterKeysRL": lambda table, case: list(check_greater_quantities(table, case)),
    "resources/TestLazyRequests": lambda table, case: list(check_lazy(table, case)),
    "resources/TestMapRequestsGetValue": lambda table, case: list(check_look_up(table, case)),
    "resources/TestMapRequestsIsEmpty": lambda table, case: list(check_size(table, case)),
    "resources/TestMapRequestsLen": lambda table, case: list(check_size(table, case)),
    "resources/TestMapRequestsSet": lambda table, case: list(check_set(table, case)),
    "resources/TestRequestsEqual": lambda table, case: list(check_equal(table, case)),
    "resources/TestResourceQuantityRoundTrips": lambda table, case: list(check_text(table, case)),
    "resources/TestResourceValueClampsOutsideInt64": lambda table, case: list(check_clamped(table, case)),
    "resources/TestSliceRequests_AddAndSub": lambda table, case: list(check_sum(table, case)),
    "resources/TestSliceRequests_Clone": check_same("req"),
    "resources/TestSliceRequests_Conversion": check_same("input"),
    "resources/TestSliceRequests_CountIn": lambda table, case: list(check_count(table, case)),
    "resources/TestSliceRequests_Divide": check_scaled(divide, "divisor"),
    "resources/TestSliceRequests_GetValue": lambda table, case: list(check_look_up(table, case)),
    "resources/TestSliceRequests_GreaterKeys": lambda table, case: list(check_greater(table, case)),
    "resources/TestSliceRequests_GreaterKeysRL": lambda table, case: list(check_greater_quantities(table, case)),
    "resources/TestSliceRequests_LenAndIsEmpty": lambda table, case: list(check_size(table, case)),
    "resources/TestSliceRequests_Mul": check_scaled(scale, "factor"),
    "resources/TestSliceRequests_SaturationMatchesMapRequests": lambda table, case: list(check_sum(table, case)),
    "resources/TestSliceRequests_ScaledDown": check_scaled(divide, "factor"),
    "resources/TestSliceRequests_ScaledUp": check_scaled(scale, "factor"),
    "resources/TestSliceRequests_Set": lambda table, case: list(check_set(table, case)),
    "resources/TestSliceRequests_ToResourceList": lambda table, case: list(check_written(table, case)),
    "resources/TestToMap": check_same("req"),
}
