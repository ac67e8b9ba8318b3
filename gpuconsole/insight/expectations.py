"""Expectations of a scenario's steps: the keys of `expect`, their syntax, and whether they hold.

The format is fixed outside the project (conformance, "modes and expect"). Lists are exact unless the key ends in
`Includes`; so is `pending`, which maps workloads to their codes. `usage`, `borrowed`, `lent`, `share`, `nodes` and
`pools` check only the objects that they name. Events (`evicted`, `noEvictions`, `lostGpuHours`, `cost`) count from the
check of the previous step. Names mean the objects that have existed so far (`ObjectNames`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from math import isfinite
from typing import Any

from msgspec import Struct

from gpuconsole.insight.cost.rates import pools
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, every, quota_tree
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import UNDER_WAY, PendingReason
from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.queues import ClusterQueue, Cohort, LocalQueue
from gpuconsole.model.resources import amount, format_quantity
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload

_DEEPEST = 4
"""Maximum length of an owner chain: a pod belongs to a job, which may belong to another; cycles end here."""


class UnknownName(LookupError):
    """A name that no object has had so far; the text has the name and the expected kind."""


class ObjectNames:
    """Index of all objects in a stream of events, by name. Mutates by `see`."""

    def __init__(self) -> None:
        self._subjects: dict[str, str] = {}
        """Display name (`ns/name`) → key in history: of a Workload, job or pod."""
        self._labels: dict[str, str] = {}
        self._pods: dict[str, set[str]] = {}
        """Bare name → keys."""
        self._owners: dict[str, str] = {}
        """Pod or job → the Workload or job that it belongs to."""
        self._queues: set[str] = set()
        self._nodes: set[str] = set()

    def copy(self) -> "ObjectNames":
        """Return an independent copy."""
        twin = ObjectNames()
        twin._subjects, twin._labels = self._subjects.copy(), self._labels.copy()
        twin._pods = {name: keys.copy() for name, keys in self._pods.items()}
        twin._owners = self._owners.copy()
        twin._queues, twin._nodes = self._queues.copy(), self._nodes.copy()
        return twin

    def see(self, events: Iterable[Event]) -> None:
        """Add the objects of these events."""
        for event in events:
            match event:
                case Applied(_, Workload() as workload):
                    self._workload(workload)
                case Applied(_, Job() as job):
                    self._job(job)
                case Applied(_, Pod() as pod):
                    self._pods.setdefault(pod.name, set()).add(pod.key)
                    self._subjects.setdefault(pod.key, pod.key)
                    self._owners[pod.key] = pod.workload or pod.job
                case Applied(_, Node() as node):
                    self._nodes.add(node.name)
                case Applied(_, ClusterQueue(cohort=cohort) as queue):
                    # A cohort may be implicit: queues name it although no Cohort object exists.
                    self._queues.update({queue.name, cohort} - {""})
                case Applied(_, Cohort() | LocalQueue() as queue):
                    self._queues.add(queue.key)

    def knows(self, name: str) -> bool:
        """True if a workload, job or pod of this name has existed."""
        return name in self._subjects

    def subject(self, name: object) -> str:
        """Return the key of a workload, job or single pod by its display name. Raises UnknownName."""
        found = self._subjects.get(str(name))
        if found is None:
            raise UnknownName(f"no workload, job or pod {_shown(name)} exists; use namespace/name")
        return found

    def label(self, key: str) -> str:
        """Return the display name of a subject: a Workload of a job has the job's name."""
        return self._labels.get(key, key)

    def top(self, key: str) -> str:
        """Return the key that represents a pod or job in a list of work: of its Workload, else of the outermost job."""
        for _ in range(_DEEPEST):
            key = self._owners.get(key) or key
        return key

    def pod(self, name: object) -> str:
        """Return the key of a pod by its key or, if unique, by its name alone. Raises UnknownName."""
        text = str(name)
        bare = text.rpartition("/")[2]
        keys = [key for key in self._pods.get(bare, ()) if text in (key, bare)]
        if len(keys) != 1:
            raise UnknownName(
                f"pod name {_shown(name)} is ambiguous; use namespace/name" if keys else f"no pod {_shown(name)} exists"
            )
        return keys[0]

    def node(self, name: object) -> str:
        """Check the name of a node and return it. Raises UnknownName."""
        if str(name) not in self._nodes:
            raise UnknownName(
                f"no node {_shown(name)} exists; there are {', '.join(sorted(self._nodes)[:8]) or 'none'}"
            )
        return str(name)

    def queue(self, name: object) -> str:
        """Check the name of a ClusterQueue or cohort, or the key of a LocalQueue, and return it. Raises UnknownName."""
        if str(name) not in self._queues:
            raise UnknownName(
                f"no queue {_shown(name)} exists; there are {', '.join(sorted(self._queues)[:8]) or 'none'}"
            )
        return str(name)

    def _workload(self, workload: Workload) -> None:
        self._subjects[workload.key] = workload.key
        if workload.owner:
            _, _, called = workload.owner.partition("/")
            self._subjects[workload.owner] = self._subjects[called] = workload.key
            self._labels[workload.key] = called

    def _job(self, job: Job) -> None:
        called = f"{job.namespace}/{job.name}"
        self._owners[job.key] = job.owner
        self._labels.setdefault(job.key, called)
        # If the job is queued, these names refer to its Workload.
        self._subjects.setdefault(job.key, job.key)
        self._subjects.setdefault(called, job.key)


def _shown(name: object) -> str:
    return clean(repr(name), 80)


DELETED = "Deleted"
"""Reason of a pod that a user deleted: it was not evicted."""


class ExpectationState:
    """The cluster that expectations are checked against, and its events since the last check."""

    def __init__(self, snapshot: Snapshot, lines: Sequence[HistoryEvent], names: ObjectNames, queued: bool) -> None:
        self.snapshot = snapshot
        self.lines = lines
        self.names = names
        self.queued = queued
        """False without queueing: work whose pods are scheduled then counts as admitted."""

    @cached_property
    def admitted(self) -> list[str]:
        """Display names of the workloads that are admitted and not terminating."""
        workloads = self.snapshot.workloads.all()
        keys = [w.key for w in workloads if w.admitted and not w.finished and not w.is_true("Evicted")]
        if not self.queued:
            keys += [key for key in self._unqueued if explain(self.snapshot, key).code is PendingReason.NOT_WAITING]
        return sorted(self.names.label(key) for key in keys)

    @cached_property
    def pending(self) -> dict[str, str]:
        """Display name of pending work → reason code."""
        keys = [workload.key for workload in self.snapshot.workloads.all()] + self._unqueued
        codes = ((key, explain(self.snapshot, key).code) for key in keys)
        return {
            self.names.label(key): code.value
            for key, code in sorted(codes)
            if code not in (PendingReason.NOT_WAITING, *UNDER_WAY)
        }

    def code(self, key: str) -> PendingReason:
        """Return the reason code of a pending workload, job or pod; `not-waiting` if it is not pending."""
        return explain(self.snapshot, key).code

    @cached_property
    def evicted(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """(victim, preemptor, reasons) of each eviction; a preemption has both its rule and `Preempted` as reasons."""
        rules = {line.workload: line.reason for line in self.lines if line.what is HistoryEventKind.PREEMPTED}
        return sorted(
            (self.names.label(subject), self.names.label(line.by), (rules.get(subject, line.reason), line.reason))
            for line in self.lines
            if line.what in (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED) and line.reason != DELETED
            for subject in [line.pod if line.what is HistoryEventKind.POD_EVICTED else line.workload]
        )

    @cached_property
    def queues(self) -> dict[str, QuotaNode]:
        """Every node of the quota tree by name; a ClusterQueue comes before a cohort of the same name."""
        found: dict[str, QuotaNode] = {}
        for node, _ in every(quota_tree(self.snapshot)):
            if node.name not in found or node.kind is NodeKind.CLUSTER_QUEUE:
                found[node.name] = node
        return found

    def on_node(self, node: str) -> list[str]:
        """Keys of the pods that are bound to a node."""
        return sorted(pod.key for pod in self.snapshot.pods.all() if pod.node == node and not pod.done)

    @property
    def free_nodes(self) -> int:
        """Number of ready nodes without pods, which could be removed."""
        busy = {pod.node for pod in self.snapshot.pods.all() if not pod.done}
        return sum(node.ready and node.name not in busy for node in self.snapshot.nodes.all())

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours of lost work; PREEMPTED lines are left out, as they repeat the loss of their EVICTED lines."""
        return sum(line.lost_gpu_seconds for line in self.lines if line.what is not HistoryEventKind.PREEMPTED) / 3600

    @property
    def cost(self) -> float:
        """USD of the lost work."""
        return sum(line.cost for line in self.lines if line.what is not HistoryEventKind.PREEMPTED)

    @cached_property
    def _unqueued(self) -> list[str]:
        """Jobs without a Workload, and pods without a job or Workload."""
        owners = {workload.owner for workload in self.snapshot.workloads.all()}
        jobs = [job.key for job in self.snapshot.jobs.all() if job.key not in owners and not job.ended]
        pods = [p.key for p in self.snapshot.pods.all() if not (p.job or p.workload or p.done or p.deleted)]
        return jobs + pods


INCLUDES = "Includes"
POOL = ("nodes", "starting", "leaving", "spot", "launched", "gone", "interrupted", "hourly", "spent")
"""Fields of a pool that `pools` can check."""
_ENTRY = ("workload", "by", "reason")


class ExpectError(ValueError):
    """An expectation cannot be checked; the text has the reason."""


class _FormError(ExpectError):
    """A value has the wrong type for its key."""


def as_list(wanted: Any) -> Sequence[Any]:
    """Return a list value; raises ExpectError for another type."""
    if not isinstance(wanted, list | tuple):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a list")
    return wanted


def as_mapping(wanted: Any) -> Mapping[str, Any]:
    """Return a mapping value; raises ExpectError for another type."""
    if not isinstance(wanted, Mapping):
        raise _FormError(f"{clean(repr(wanted), 60)} is not a mapping of names")
    return wanted


def as_number(wanted: Any) -> int | float:
    """Return a finite number; raises ExpectError for another value."""
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


def _number_values(wanted: Any) -> None:
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
    "borrowed": (_number_values, "{queue: 4}"),
    "lent": (_number_values, "{queue: 4}"),
    "share": (_number_values, "{queue: 50}"),
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
"""Similarity (0 to 1) from which on a key is suggested for an unknown one, so that only typing errors match."""


class ExpectationCheck(Struct, frozen=True):
    """Result of checking one key, with the expected and the actual value as text."""

    ok: bool
    wanted: str
    got: str


Check = Callable[[ExpectationState, Any, bool], ExpectationCheck]


def check_admitted(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `admitted`: the names of the admitted workloads; with `includes` others may be admitted, too."""
    keys = sorted(map(look.names.subject, as_list(wanted)), key=look.names.label)
    names = list(map(look.names.label, keys))
    codes = {name: look.code(key) for name, key in zip(names, keys, strict=True) if name not in look.admitted}
    waits = [f"{name} pending: {code}" for name, code in codes.items() if code is not PendingReason.NOT_WAITING]
    more = f" ({', '.join(waits)})" if waits else ""
    return ExpectationCheck(_holds(names, look.admitted, includes), _join(names), f"{_join(look.admitted)}{more}")


def check_pending(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `pending`: the pending workloads with their reason codes; with `includes` others may be pending."""
    codes = {look.names.label(look.names.subject(name)): as_code(code) for name, code in as_mapping(wanted).items()}
    got = look.pending
    ok = codes.items() <= got.items() if includes else codes == got
    return ExpectationCheck(
        ok, _join(f"{n}: {c}" for n, c in sorted(codes.items())), _join(f"{n}: {c}" for n, c in got.items())
    )


def check_evicted(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `evicted`: the evictions, with preemptor and reason where given; with `includes` more may occur."""
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
    """Check key `noEvictions`: there was no eviction since the previous check."""
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
    """Check key `nodes`: the pods on each node; with `includes` others may be there, too."""
    want, got, ok = [], [], True
    for node, pods in as_mapping(wanted).items():
        there = look.on_node(look.names.node(node))
        names = sorted(look.names.pod(name) for name in as_list(pods))
        ok = ok and _holds(names, there, includes)
        want.append(f"{node}: {_join(names)}")
        got.append(f"{node}: {_join(there)}")
    return ExpectationCheck(ok, "; ".join(want), "; ".join(got))


def check_free_nodes(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `freeNodes`: the number of ready nodes without pods."""
    return _number(wanted, look.free_nodes)


def check_lost_gpu_hours(look: ExpectationState, wanted: Any, includes: bool) -> ExpectationCheck:
    """Check key `lostGpuHours`: GPU-hours of the lost work."""
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
        """Check all keys; return key → result. Raises ExpectError, with the key, for one that cannot be checked."""
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
