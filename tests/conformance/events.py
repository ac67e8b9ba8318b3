"""Events of a cycle as Kueue's recorder sees them, and as a case lists them."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.events import AdmissionDecision
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.conformance.tables import Document
from tests.support.decision_events import events_for

_AS_THEY_ARE = (
    *("AdmissionGated", "SecondPassFailed", "DeprecatedPathUsage", "FailedCreate", "ErrWorkloadCompose"),
    "JobNestingTooDeep",
)
"""Warnings whose reasons do not depend on the gate UnadmittedWorkloadsObservability."""


class Seen(Struct, frozen=True, order=True):
    """One event."""

    key: str
    type: str
    reason: str
    message: str = ""

    def silent(self) -> "Seen":
        return replace(self, message="")


def events_of(
    decision: AdmissionDecision,
    before: Workload,
    after: Workload,
    workloads: Mapping[str, Workload],
    config: KueueConfig,
    now: Time,
) -> Iterator[Seen]:
    """What the recorder would be told of a decision."""
    for event in events_for(decision, before, after, workloads, config, now):
        yield Seen(event.workload, "Warning" if event.warning else "Normal", event.reason, event.message)


def expected_events(listed: Sequence[Document], *, granular: bool) -> list[Seen]:
    """What a case lists, which is what the gate UnadmittedWorkloadsObservability makes of warnings; or without it."""
    return [
        Seen(e["Key"], e["EventType"], e["Reason"] if granular else _reason(e), e.get("Message", "")) for e in listed
    ]


def _reason(event: Document) -> str:
    reason = str(event["Reason"])
    if event["EventType"] != "Warning" or reason in _AS_THEY_ARE:
        return reason
    return "Waiting" if reason == "WaitingForPodsReady" else "Pending"
