"""Validation of lifecycle policies: valid events and actions, and their combinations (jobs/validate)."""

from collections.abc import Iterator, Sequence
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import entries
from gpuconsole.model.apiserver.volcano.objections import Objection
from gpuconsole.model.documents.findings import Path

EVENTS = (
    *("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed"),
    "JobUpdated",
)
ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob"),
    "ResumeJob",
)
_REMEDIES = {
    "bad-value": f"it takes {', '.join(EVENTS)}",
    "bad-verb": f"it takes {', '.join(ACTIONS)}",
    "bad-policy": "give a policy events or an exit code, and each of them once",
}
Fault = tuple[str, str, Path]
"""Text, code, and the path below the policies."""


def check_policies(policies: Sequence[Any], path: Path, field: str) -> Iterator[Objection]:
    """Report the errors of the policies at a path as one objection; the first wrong policy ends the validation.

    `field` is the name of the field in Volcano's text.
    """
    events: set[str] = set()
    faults = list(_faults(policies, events, field))
    if "*" in events and len(events) > 1:
        faults.append(("if there's * here, no other policy should be here", "bad-policy", ()))
    if not faults:
        return
    count = "1 error" if len(faults) == 1 else f"{len(faults)} errors"
    lines = "".join(f"\t* {text}\n" for text, _, _ in faults)
    valid = f" valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}];"
    text = f"{count} occurred:\n{lines}\n{valid}"
    first, code, below = faults[0]
    yield PolicyObjection((*path, *below), text, _REMEDIES[code], code, first)


class PolicyObjection(Objection, frozen=True):
    """Objection whose `problem` is its first fault, without the list of all valid events and actions."""

    fault: str

    @property
    def problem(self) -> str:
        return self.fault


def _faults(policies: Sequence[Any], events: set[str], field: str) -> Iterator[Fault]:
    codes: set[int] = set()
    for n, policy in enumerate(policies):
        named, exit_code = _events(policy), policy.get("exitCode")
        if named and exit_code is not None:
            yield "must not specify event and exitCode simultaneously", "bad-policy", (n, "exitCode")
            return
        if not named and exit_code is None:
            yield "either event and exitCode should be specified", "bad-policy", (n,)
            return
        fault = _event_fault(n, policy, named, events, field) if named else _code_fault(n, exit_code, codes)
        if fault is not None:
            yield fault
            return


def _events(policy: Any) -> list[str]:
    single = policy.get("event")
    return list(dict.fromkeys([*map(str, entries(policy, "events")), *([str(single)] if single else [])]))


def _event_fault(n: int, policy: Any, named: list[str], events: set[str], field: str) -> Fault | None:
    action = str(policy.get("action") or "")
    listed = [str(event) for event in entries(policy, "events")]
    for event in named:
        place: Path = (n, "events", listed.index(event)) if event in listed else (n, "event")
        if event not in EVENTS:
            return f'{field}: Invalid value: "{event}": invalid policy event', "bad-value", place
        if action not in ACTIONS:
            return f'{field}: Invalid value: "{action}": invalid policy action', "bad-verb", (n, "action")
        if event in events:
            return f"duplicate event {event}  across different policy", "bad-policy", place
        events.add(event)
    return None


def _code_fault(n: int, code: Any, codes: set[int]) -> Fault | None:
    if code == 0:
        return "0 is not a valid error code", "bad-policy", (n, "exitCode")
    if code in codes:
        return f"duplicate exitCode {code}", "bad-policy", (n, "exitCode")
    codes.add(code)
    return None
