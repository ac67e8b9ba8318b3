"""Expectations of a scenario's steps: the syntax of `expect`, and whether they hold.

Expectations of a scenario's steps: the keys of `expect`, and whether they hold.

The format is fixed outside the project (conformance, "modes and expect"). Lists are exact unless the key ends in
`Includes`; so is `pending`, which is a list of workloads with their codes. `usage`, `borrowed`, `lent`, `share`,
`nodes` and `pools` check only the objects that they name. Events (`evicted`, `noEvictions`, `lostGpuHours`, `cost`)
count from the check of the previous step.

Syntax of a scenario's `expect`, key by key: the checks that need no run.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from msgspec import Struct

from gpuconsole.insight.cost import pools
from gpuconsole.insight.expectation_state import ExpectationState, ObjectNames, UnknownName
from gpuconsole.insight.index.quota_tree import QuotaNode
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.resources import amount, format_quantity
from gpuconsole.model.text import clean

INCLUDES = "Includes"
POOL = ("nodes", "starting", "leaving", "spot", "launched", "gone", "interrupted", "hourly", "spent")
"""Fields of a pool."""
_ENTRY = ("workload", "by", "reason")


class ExpectError(ValueError):
    """An expectation cannot be checked; the text has the reason."""


class _FormError(ExpectError):
    """A value has the wrong type for its key."""


def as_list(wanted: Any) -> Sequence[Any]:
    """Return a list value; raises _FormError for another type."""
    if not isinstance(wanted, list | tuple):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a list")
    return wanted


def as_mapping(wanted: Any) -> Mapping[str, Any]:
    """Return a mapping value; raises _FormError for another type."""
    if not isinstance(wanted, Mapping):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a mapping of names")
    return wanted


def as_number(wanted: Any) -> int | float:
    """Return a finite number; raises _FormError for another value."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not isfinite(wanted):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a number")
    return wanted


def as_code(text: Any) -> str:
    """Return a reason code; raises ExpectError, with the nearest code, for an unknown one."""
    try:
        return PendingReason(str(text)).value
    except ValueError:
        near = get_close_matches(str(text), list(PendingReason), 1)
        remedy = f"did you mean {str(near[0])!r}?" if near else f"use one of {', '.join(PendingReason)}"
        raise ExpectError(f"{clean(repr(text), 60)} is not a reason code; {remedy}") from None


def as_amount(resource: str, value: Any) -> int:
    """Return a quantity of a resource in base units; raises ExpectError if it cannot be parsed."""
    if not isinstance(value, str | int | float):
        raise ExpectError(f"{clean(repr(value), 60)} is not a quantity; write it as 8, 500m, 1.5Gi or 2e3")
    try:
        return amount(resource, value)
    except ValueError as error:
        raise ExpectError(str(error)) from None


def _codes(wanted: Any) -> None:
    for text in as_mapping(wanted).values():
        as_code(text)


def _evictions(wanted: Any) -> None:
    for entry in as_list(wanted):
        fields = as_mapping(entry)
        if "workload" not in fields or any(key not in _ENTRY for key in fields):
            raise ExpectError(f"an eviction needs workload and takes by, reason; got {clean(repr(entry), 120)}")


def _true(wanted: Any) -> None:
    if wanted is not True:
        raise ExpectError("noEvictions takes only true; use evicted to name victims")


def _amounts(wanted: Any) -> None:
    said = 0
    for flavors in as_mapping(wanted).values():
        for resources in as_mapping(flavors).values():
            for resource, value in as_mapping(resources).items():
                as_amount(resource, value)
                said += 1
    if not said:
        raise ExpectError("no resource is given; write queue: {flavor: {resource: amount}}")


def _expect_forms_numbers(wanted: Any) -> None:
    for value in as_mapping(wanted).values():
        as_number(value)


def _pods(wanted: Any) -> None:
    for pods in as_mapping(wanted).values():
        as_list(pods)


def _pools(wanted: Any) -> None:
    said = 0
    for facts in as_mapping(wanted).values():
        for key, value in as_mapping(facts).items():
            if key not in POOL:
                raise ExpectError(f"{clean(repr(key), 60)} is not a field of a pool; use one of {', '.join(POOL)}")
            as_number(value)
            said += 1
    if not said:
        raise ExpectError("no field is given; write pool: {nodes: 1}")


FORMS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "admitted": (as_list, "[ml/train]"),
    "pending": (_codes, "{ml/train: quota}"),
    "evicted": (_evictions, "[{workload: ml/train, by: ml/serve}]"),
    "usage": (_amounts, "{queue: {flavor: {nvidia.com/gpu: 8}}}"),
    "borrowed": (_expect_forms_numbers, "{queue: 4}"),
    "lent": (_expect_forms_numbers, "{queue: 4}"),
    "share": (_expect_forms_numbers, "{queue: 50}"),
    "nodes": (_pods, "{node-1: [train-0]}"),
    "freeNodes": (as_number, "2"),
    "lostGpuHours": (as_number, "1.5"),
    "cost": (as_number, "12.50"),
    "pools": (_pools, "{pool: {nodes: 1}}"),
    "noEvictions": (_true, "true"),
}
"""Key → its reader, and an example of its value."""


def read_form(key: str, wanted: Any) -> None:
    """Check the value of a key; raises ExpectError if it has the wrong form."""
    read, written = FORMS[key.removesuffix(INCLUDES)]
    try:
        read(wanted)
    except _FormError as error:
        raise ExpectError(f"{key}: {error}; write {key}: {written}") from None
    except ExpectError as error:
        raise ExpectError(f"{key}: {error}") from None


WITHIN = "within"
NOTHING = "nothing"
CLOSE = 0.8
"""Similarity from which on a key is suggested: `usageIncludes` does not mean `nodesIncludes`."""


class ExpectationCheck(Struct, frozen=True):
    """Result of one key, as text."""

    ok: bool
    wanted: str
    got: str


Check = Callable[[ExpectationState, Any, bool], ExpectationCheck]


def check_admitted(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `admitted`: the names of the admitted workloads."""
    keys = sorted(map(look.names.subject, as_list(wanted)), key=look.names.label)
    names = list(map(look.names.label, keys))
    codes = {name: look.code(key) for name, key in zip(names, keys, strict=True) if name not in look.admitted}
    waits = [f"{name} pending: {code}" for name, code in codes.items() if code is not PendingReason.NOT_WAITING]
    more = f" ({', '.join(waits)})" if waits else ""
    return ExpectationCheck(_holds(names, look.admitted, includes), _join(names), f"{_join(look.admitted)}{more}")


def check_pending(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `pending`: the pending workloads with their reason codes."""
    codes = {look.names.label(look.names.subject(name)): as_code(code) for name, code in as_mapping(wanted).items()}
    got = look.pending
    ok = codes.items() <= got.items() if includes else codes == got
    return ExpectationCheck(
        ok, _join(f"{n}: {c}" for n, c in sorted(codes.items())), _join(f"{n}: {c}" for n, c in got.items())
    )


def check_evicted(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `evicted`: the evictions, with preemptor and reason where given."""
    entries = [_entry(look.names, entry) for entry in as_list(wanted)]
    left = list(look.evicted)
    ok = True
    for entry in entries:
        match = next((found for found in left if _is(entry, found)), None)
        ok = ok and match is not None
        if match is not None:
            left.remove(match)
    got = _join(_evicted_text(who, by, reasons[0]) for who, by, reasons in look.evicted)
    return ExpectationCheck(ok and (includes or not left), _join(_evicted_text(*entry) for entry in entries), got)


def check_no_evictions(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `noEvictions`."""
    got = [_evicted_text(who, by, reasons[0]) for who, by, reasons in look.evicted]
    return ExpectationCheck(not got, "no evictions", _join(got))


def check_usage(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `usage`: used quota by queue, flavor and resource."""
    want, got = [], []
    for queue, flavors in as_mapping(wanted).items():
        uses = {(use.flavor, use.resource): use.used for use in _queue(look, queue).flavors}
        for flavor, resources in as_mapping(flavors).items():
            for resource, value in as_mapping(resources).items():
                if (flavor, resource) not in uses:
                    raise UnknownName(f"queue {queue} has no quota of {clean(f'{resource} in {flavor}', 120)}")
                want.append(f"{queue} {flavor} {resource} {format_quantity(resource, as_amount(resource, value))}")
                got.append(f"{queue} {flavor} {resource} {format_quantity(resource, uses[flavor, resource])}")
    return ExpectationCheck(want == got, _join(want), _join(got))


def check_borrowed(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `borrowed`: borrowed GPUs by queue."""
    return _numbers(wanted, lambda queue: _queue(look, queue).gpus.borrowed)


def check_lent(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `lent`: lent GPUs by queue."""
    return _numbers(wanted, lambda queue: _queue(look, queue).gpus.lent)


def check_share(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `share`: percent of the maximum capacity in use, by queue."""
    return _numbers(wanted, lambda queue: _queue(look, queue).share_percent)


def check_nodes(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `nodes`: the pods on each node."""
    want, got, ok = [], [], True
    for node, pods in as_mapping(wanted).items():
        there = look.on_node(look.names.node(node))
        names = sorted(look.names.pod(name) for name in as_list(pods))
        ok = ok and _holds(names, there, includes)
        want.append(f"{node}: {_join(names)}")
        got.append(f"{node}: {_join(there)}")
    return ExpectationCheck(ok, "; ".join(want), "; ".join(got))


def check_free_nodes(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `freeNodes`: the number of schedulable nodes without pods."""
    return _number(wanted, look.free_nodes)


def check_lost_gpu_hours(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `lostGpuHours`."""
    return _number(wanted, look.lost_gpu_hours)


def check_cost(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `cost`: USD of the lost work."""
    return _number(wanted, look.cost)


def check_pools(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `pools`: the given fields of each pool; costs are compared to as many decimals as are written."""
    found, want, got, ok = {pool.name: pool for pool in pools(look.snapshot)}, [], [], True
    for name, facts in as_mapping(wanted).items():
        if name not in found:
            raise UnknownName(f"no pool {clean(repr(name), 80)} exists; there are {', '.join(found) or 'none'}")
        for key, value in as_mapping(facts).items():
            one = _number(value, getattr(found[name], key))
            ok = ok and one.ok
            want.append(f"{name} {key} {one.wanted}")
            got.append(f"{name} {key} {one.got}")
    return ExpectationCheck(ok, _join(want), _join(got))


CHECKS: dict[str, Check] = {
    "admitted": check_admitted,
    "pending": check_pending,
    "evicted": check_evicted,
    "usage": check_usage,
    "borrowed": check_borrowed,
    "lent": check_lent,
    "share": check_share,
    "nodes": check_nodes,
    "freeNodes": check_free_nodes,
    "lostGpuHours": check_lost_gpu_hours,
    "cost": check_cost,
    "pools": check_pools,
    "noEvictions": check_no_evictions,
}
LISTS = ("admitted", "pending", "evicted", "nodes")
"""Keys that may end in `Includes`."""
NAMED = ("usage", "borrowed", "lent", "share", "nodes", "pools")
"""Keys that check only the objects that they name."""


class Expectation(Struct, frozen=True):
    """One item of an `expect` list: its keys with their expected values, and its deadline."""

    wanted: Mapping[str, Any]
    within: Span = 0

    def check(self, look: ExpectationState) -> dict[str, ExpectationCheck]:
        """Key → result. Raises ExpectError or UnknownName, with the key, if it cannot be checked."""
        return {key: _check(look, key, wanted) for key, wanted in self.wanted.items()}


def read_expectation(document: Mapping[str, Any]) -> Expectation:
    """Read one item of an `expect` list.

    Raises ExpectError for an unknown key, no key, an invalid value, and an invalid `within`.
    """
    wanted = {key: value for key, value in document.items() if key != WITHIN}
    known = [*CHECKS, *(key + INCLUDES for key in LISTS)]
    for key in wanted:
        if key not in known:
            near = get_close_matches(str(key), known, 1, CLOSE)
            remedy = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)} and {WITHIN}"
            raise ExpectError(f"{clean(repr(key), 60)} is not a key of expect; {remedy}")
        if wanted[key] in ([], {}, None) and (key in NAMED or key.endswith(INCLUDES)):
            raise ExpectError(f"{key}: it is empty and would always hold; name at least one object")
        read_form(key, wanted[key])
    if not wanted:
        raise ExpectError(f"it is empty; add one of {', '.join(known)}")
    try:
        within = parse_span(str(document.get(WITHIN, "0s")))
    except ValueError as error:
        raise ExpectError(f"{WITHIN}: {error}") from None
    return Expectation(wanted, within)


def _check(look: ExpectationState, key: str, wanted: Any) -> ExpectationCheck:
    plain = key.removesuffix(INCLUDES)
    try:
        return CHECKS[plain](look, wanted, plain != key)
    except (ExpectError, UnknownName) as error:
        raise ExpectError(f"{key}: {error}") from None


def _holds(wanted: list[str], got: list[str], includes: bool) -> bool:
    return set(wanted) <= set(got) if includes else wanted == got


def _entry(names: ObjectNames, entry: Any) -> tuple[str, str, str]:
    fields = as_mapping(entry)
    who, by = names.subject(fields["workload"]), fields.get("by")
    return names.label(who), names.label(names.subject(by)) if by else "", str(fields.get("reason") or "")


def _is(entry: tuple[str, str, str], found: tuple[str, str, tuple[str, ...]]) -> bool:
    """Compare an expected eviction with an actual one; omitted fields match any value."""
    return entry[0] == found[0] and entry[1] in ("", found[1]) and entry[2] in ("", *found[2])


def _evicted_text(who: str, by: str, reason: str) -> str:
    return " ".join(part for part in (who, f"by {by}" if by else "", f"({reason})" if reason else "") if part)


def _numbers(wanted: Any, number: Callable[[str], float]) -> ExpectationCheck:
    want, got, ok = [], [], True
    for name, value in as_mapping(wanted).items():
        one = _number(value, number(name))
        ok = ok and one.ok
        want.append(f"{name} {one.wanted}")
        got.append(f"{name} {one.got}")
    return ExpectationCheck(ok, _join(want), _join(got))


def _number(wanted: Any, got: float) -> ExpectationCheck:
    """Compare to as many decimals as were written; whole numbers to two."""
    number = as_number(wanted)
    decimals = 2 if isinstance(number, int) else len(repr(number).partition(".")[2])
    return ExpectationCheck(round(got, decimals) == number, f"{number:g}", f"{round(got, max(2, decimals)):g}")


def _queue(look: ExpectationState, name: str) -> QuotaNode:
    found = look.queues.get(look.names.queue(name))
    if found is None:
        raise UnknownName(f"queue {clean(name, 80)} no longer exists")
    return found


def _join(parts: Any) -> str:
    return ", ".join(parts) or NOTHING
