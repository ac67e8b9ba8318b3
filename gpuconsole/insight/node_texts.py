"""Parser for the messages of kube-scheduler (1.18 and later) and Volcano about nodes: nodes excluded by each reason."""

import re

from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.insight.reasons import ParsedReason

_HEAD = re.compile(r"(?P<fit>\d+)/(?P<all>\d+) nodes are (?:un)?available")
"""Volcano counts the nodes that are left, and calls them unavailable."""
_NODE_REASONS = tuple(
    re.compile(rf"(?P<count>\d+) {pattern}")
    for pattern in (
        r"Insufficient (?P<resource>[^\s,]+?)(?=[,.]?(?:\s|$))",
        r"node\(s\) had untolerated taint(?:\(s\)| \{(?P<name>[^}]*)\})",
        r"node\(s\) had taints? (?:\{(?P<name>[^}]*)\}, )?that the pod didn't tolerate",
        r"node\(s\) didn't match Pod's node affinity(?:/selector)?",
        r"node\(s\) didn't match node selector",
        r"node\(s\) didn't (?:match|satisfy existing pods) (?:pod )?(?:anti-)?affinity(?: rules|/\S+)?",
        r"node\(s\) had (?:volume )?node affinity conflict",
        r"node\(s\) didn't find available persistent volumes to bind",
        r"node\(s\) exceed max volume count",
        r"node\(s\) didn't have free ports for the requested pod ports",
        r"cannot allocate all claims",
        r"node\(s\) (?:pod number exceeded|resource fit failed)",
        r"node\(s\) were unschedulable",
        r"node\(s\) didn't match pod topology spread constraints(?: \([^)]*\))?",
        r"node\(s\) were not ready",
        r"Too many pods",
    )
)


def read_nodes(text: str) -> tuple[ParsedReason, ...]:
    """Parse a FailedScheduling message; `count` is the number of nodes that each reason excludes, most first.

    Nodes that the pod does not select come last: more capacity there would not help.
    """
    head = _HEAD.search(text)
    if head is None:
        return (ParsedReason(code=PendingReason.OTHER, text=text),) if text else ()
    body = text[head.end() :].partition(" preemption: ")[0]
    reasons = [
        ParsedReason(
            code=PendingReason.NODES,
            text=match[0],
            count=int(match["count"]),
            resource=match.groupdict().get("resource") or "",
            name=match.groupdict().get("name") or "",
        )
        for pattern in _NODE_REASONS
        for match in pattern.finditer(body)
    ]
    reasons.sort(key=lambda reason: (_unselected(reason), -reason.count))
    return tuple(reasons) or (ParsedReason(code=PendingReason.NODES, text=text),)


def _unselected(reason: ParsedReason) -> bool:
    return reason.text.endswith(("Pod's node affinity", "Pod's node affinity/selector", "match node selector"))
