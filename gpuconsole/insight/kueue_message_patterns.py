"""Patterns for Kueue's messages about pending workloads (0.6 to 0.19), each with its reason code.

Read from flavorassigner.go, tas_flavorassigner.go, tas_flavor_snapshot.go, scheduler.go, workload_controller.go and the
preemption package of each of these releases. The newest wording comes first, then older ones.
"""

import re

from gpuconsole.insight.pending_reasons import PendingReason

POD_SET = re.compile(r"(?:couldn't|failed to) assign flavors to pod set (?P<name>\S+?): ")
_TAINT = r"untolerated taint \{(?P<name>\S*) (?P<value>\S*) (?P<effect>\S*) <nil>\} in flavor (?P<flavor>[^\s,;]+)"
_LESS = r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+)"
_UNUSED = r" for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), (?P<short>\S+) more needed"
_FLAVOR_REASONS: tuple[tuple[PendingReason, str], ...] = (
    (PendingReason.QUOTA, f"insufficient unused quota{_UNUSED}"),
    (PendingReason.QUOTA, f"insufficient unused quota in cohort{_UNUSED}"),
    (PendingReason.QUOTA, r"borrowing limit for (?P<resource>\S+) in flavor (?P<flavor>\S+) exceeded"),
    (
        PendingReason.EXCEEDS_MAX,
        rf"{_LESS}, previously considered podsets requests \((?P<assumed>[^)]*)\) \+ current podset request "
        r"\((?P<request>[^)]*)\) > maximum capacity \((?P<capacity>[^)]*)\)",
    ),
    (PendingReason.EXCEEDS_MAX, rf"{_LESS}, request > maximum capacity \((?P<request>\S+) > (?P<capacity>[^)]*)\)"),
    (PendingReason.EXCEEDS_MAX, rf"{_LESS} in ClusterQueue"),
    (PendingReason.FLAVOR_MISMATCH, _TAINT),
    (PendingReason.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) doesn't match node affinity"),
    (PendingReason.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) not found"),
    (PendingReason.FLAVOR_MISMATCH, r"resource (?P<resource>\S+) unavailable in ClusterQueue"),
    (
        PendingReason.FLAVOR_MISMATCH,
        r"could not assign (?P<flavor>\S+) flavor since the original workload is assigned: [^,;]*",
    ),
    (
        PendingReason.FLAVOR_MISMATCH,
        r"skipping flavor (?P<flavor>\S+) (?:as it is not found in the nomination|due to)[^,;]*",
    ),
    (
        PendingReason.FLAVOR_MISMATCH,
        r"Flavor \"(?P<flavor>[^\"]+)\" (?:does not support TopologyAwareScheduling|information missing in TAS cache"
        r"|does not contain the requested level|supports only TopologyAwareScheduling)",
    ),
    (PendingReason.TOPOLOGY, r"no (?:topology domains at|requested topology) level: (?P<name>[^\s,;]+)"),
    (PendingReason.TOPOLOGY, r"topology \"(?P<name>[^\"]+)\" (?:doesn't allow|allows) to fit [^,;]*"),
    (PendingReason.TOPOLOGY, r"workload requires Topology, but there is no TAS cache information"),
    (PendingReason.TOPOLOGY, r"(?:more than one|no) (?:TAS )?flavor assigned"),
    (PendingReason.TOPOLOGY, r"\S+ topology is not supported with ElasticJobsViaWorkloadSlices"),
    (PendingReason.TOPOLOGY, r"Cannot replace the node, because the existing topologyAssignment is invalid[^;]*"),
)
FLAVOR_REASONS = tuple((code, re.compile(pattern)) for code, pattern in _FLAVOR_REASONS)
SUFFIX = re.compile(
    r"\. (?:Pending the (?:preemption|migration) of (?P<count>\d+) workload\(s\)"
    r"|Preempting (?P<failed>\d+) workload\(s\) failed, will retry\.)$"
)
_CONTENDED = (
    r"Workload has overlapping preemption targets with another workload",
    r"Workload no longer fits after processing another workload",
    r"A more favorable variant is already admitted",
    r"Failed to admit workload: .*",
    r"Workload skipped because its premption calculations were invalidated by another workload",
    r"other workloads in the cohort were prioritized",
)
_EVICTED = (
    r"(?:Preempted|Replaced|Evicted) to accommodate a workload \(UID: (?P<name>[^,)]*).*",
    r"Preempted to accommodate a higher priority Workload",
    r"Preempted by another workload in the .*",
    r"Exceeded the PodsReady timeout .*",
    r"Evicted due to AdmissionChecks? .*",
    r"At least one admission check is false",
    r"Workload was evicted as there was no replacement for (?:unhealthy node\(s\)|a failed node): .*",
)
_WHOLE: tuple[tuple[PendingReason, str], ...] = (
    (
        PendingReason.WAITING_FOR_VICTIMS,
        r"Workload has overlapping preemption targets with another workload, "
        r"but will fit after these preemptions complete",
    ),
    *((PendingReason.CONTENTION, pattern) for pattern in _CONTENDED),
    (PendingReason.NAMESPACE, r"[Ww]orkload namespace doesn't match ClusterQueue selector"),
    (PendingReason.NAMESPACE, r'workload namespace "[^"]*" does not exist: .*'),
    (PendingReason.NAMESPACE, r"Could not obtain workload namespace: .*"),
    (PendingReason.QUEUE_STOPPED, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is stopped"),
    (PendingReason.QUEUE_STOPPED, r"The (?:ClusterQueue|LocalQueue) is stopped"),
    (PendingReason.QUEUE_INACTIVE, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is inactive"),
    (
        PendingReason.QUEUE_MISSING,
        r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) (?:doesn't exist|not found|is terminating or missing)",
    ),
    (PendingReason.DEACTIVATED, r"The workload is deactivated.*"),
    (PendingReason.DEACTIVATED, r"Deactivat(?:ing|ed) [Ww]orkload .*"),
    *((PendingReason.EVICTED, pattern) for pattern in _EVICTED),
    (PendingReason.QUEUED, r"Workload is pending evaluation in the scheduling queue"),
    (PendingReason.QUEUED, r"AdmissionGatedBy cleared, waiting for quota reservation"),
    (PendingReason.QUEUED, r"The workload has no reservation(?: and not all checks ready)?"),
    (PendingReason.INADMISSIBLE, r"Bypassed scheduling evaluation because an equivalent workload recently failed"),
    (PendingReason.GATED, r"Admission is gated by: (?P<name>.*)"),
    (PendingReason.GATED, r"Workload requires preemption, but it's gated"),
    (PendingReason.INVALID, r"resources validation failed: .*"),
    (PendingReason.INVALID, r"resources didn't satisfy LimitRange constraints: .*"),
    (PendingReason.FLAVOR_MISMATCH, r"Target flavor is below LastAcceptableFlavorName"),
    (PendingReason.CHECKS, r"The workload has failed admission checks"),
    (PendingReason.CHECKS, r"The workload has not all checks ready"),
    (PendingReason.PODS_READY, r"[Ww]aiting for all admitted workloads to be in (?:the )?PodsReady condition"),
)
WHOLE = tuple((code, re.compile(pattern)) for code, pattern in _WHOLE)
