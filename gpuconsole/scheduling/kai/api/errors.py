"""Reasons why a job or a task does not fit, in KAI's wording (KAI 0.13 api/common_info job_errors, pod_errors)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

NO_NODES = "no nodes with enough resources were found"
UNABLE = "Unable to schedule podgroup"
UNABLE_POD = "Unable to schedule pod"
NO_QUEUE = "QueueDoesNotExist"
TOO_FEW = "Not enough resources for the workload"
POD_ERRORS = "PodSchedulingErrors"
OVER_LIMIT = "OverLimit"
OVER_QUOTA = "NonPreemptibleOverQuota"


class JobError(Struct, frozen=True, kw_only=True):
    """One reason why a job does not fit, with short messages and details."""

    reason: str
    messages: tuple[str, ...]
    details: tuple[str, ...] = ()
    sub_group: str = ""
    domain: str = ""

    @property
    def detail(self) -> str:
        """The details, else the messages, with the sub-group and the topology domain that they concern."""
        text = ", ".join(self.details or self.messages)
        if self.sub_group not in ("", "default"):
            text = f"subgroup {self.sub_group}: {text}"
        return f"<{self.domain}>: {text}" if self.domain else text


def explain(errors: Sequence[JobError]) -> str:
    """All reasons with their details, as in KAI's events."""
    reason = errors[0].reason if len(errors) == 1 else UNABLE
    return f"\n{reason}." + "".join(sorted(f"\n{error.detail}." for error in errors))


def summary(errors: Sequence[JobError]) -> str:
    """All messages in one text, with the number of equal ones."""
    reason = errors[0].reason if len(errors) == 1 else UNABLE
    counted = Counter(message for error in errors for message in error.messages)
    lines = sorted(f"{n} {message}" if n > 1 else message for message, n in counted.items())
    text = ". \n".join(lines)
    return f"{reason}: {text}." if lines else reason


class NodeError(Struct, frozen=True):
    """Why one node does not take a task."""

    reasons: tuple[str, ...]
    details: tuple[str, ...] = ()


class TaskErrors:
    """Why a task was not placed: for the task as a whole, or node by node. Mutates."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.nodes: dict[str, NodeError] = {}

    @property
    def message(self) -> str:
        """The reasons, each with the number of nodes that gave it."""
        lines = histogram(error.reasons for error in self.nodes.values())
        text = self.text or NO_NODES
        return f"{text}: {lines}." if lines else text

    @property
    def detail(self) -> str:
        """The reason, and the details of every node."""
        lines = [f"\n{self.text or NO_NODES}."]
        lines += (f"\n<{node}>: {', '.join(e.details or e.reasons)}." for node, e in self.nodes.items())
        return "".join(sorted(lines))


def histogram(reasons: Iterable[Sequence[str]]) -> str:
    """Reasons with their counts, in text order."""
    counted = Counter(reason for group in reasons for reason in group)
    return ". \n".join(sorted(f"{n} {reason}" for reason, n in counted.items()))
