"""Patterns for Kueue's messages about pending workloads (0.6 to 0.19), each with its reason code.

Read from flavorassigner.go, tas_flavorassigner.go, tas_flavor_snapshot.go, scheduler.go, workload_controller.go and the
preemption of each of these releases. The newest wording comes first, what older releases wrote after it.
"""

import re

from gpuconsole.insight.codes import Code

POD_SET = re.compile(r"(?:couldn't|failed to) assign flavors to pod set (?P<name>\S+?): ")
_TAINT = r"untolerated taint \{(?P<name>\S*) (?P<value>\S*) (?P<effect>\S*) <nil>\} in flavor (?P<flavor>[^\s,;]+)"
_LESS = r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+)"
_UNUSED = r" for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), (?P<short>\S+) more needed"
_FLAVOR_REASONS: tuple[tuple[Code, str], ...] = (
    (Code.QUOTA, f"insufficient unused quota{_UNUSED}"),
    (Code.QUOTA, f"insufficient unused quota in cohort{_UNUSED}"),
    (Code.QUOTA, r"borrowing limit for (?P<resource>\S+) in flavor (?P<flavor>\S+) exceeded"),
    (
        Code.EXCEEDS_MAX,
        rf"{_LESS}, previously considered podsets requests \((?P<assumed>[^)]*)\) \+ current podset request "
        r"\((?P<request>[^)]*)\) > maximum capacity \((?P<capacity>[^)]*)\)",
    ),
    (Code.EXCEEDS_MAX, rf"{_LESS}, request > maximum capacity \((?P<request>\S+) > (?P<capacity>[^)]*)\)"),
    (Code.EXCEEDS_MAX, rf"{_LESS} in ClusterQueue"),
    (Code.FLAVOR_MISMATCH, _TAINT),
    (Code.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) doesn't match node affinity"),
    (Code.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) not found"),
    (Code.FLAVOR_MISMATCH, r"resource (?P<resource>\S+) unavailable in ClusterQueue"),
    (Code.FLAVOR_MISMATCH, r"could not assign (?P<flavor>\S+) flavor since the original workload is assigned: [^,;]*"),
    (Code.FLAVOR_MISMATCH, r"skipping flavor (?P<flavor>\S+) (?:as it is not found in the nomination|due to)[^,;]*"),
    (
        Code.FLAVOR_MISMATCH,
        r"Flavor \"(?P<flavor>[^\"]+)\" (?:does not support TopologyAwareScheduling|information missing in TAS cache"
        r"|does not contain the requested level|supports only TopologyAwareScheduling)",
    ),
    (Code.TOPOLOGY, r"no (?:topology domains at|requested topology) level: (?P<name>[^\s,;]+)"),
    (Code.TOPOLOGY, r"topology \"(?P<name>[^\"]+)\" (?:doesn't allow|allows) to fit [^,;]*"),
    (Code.TOPOLOGY, r"workload requires Topology, but there is no TAS cache information"),
    (Code.TOPOLOGY, r"(?:more than one|no) (?:TAS )?flavor assigned"),
    (Code.TOPOLOGY, r"\S+ topology is not supported with ElasticJobsViaWorkloadSlices"),
    (Code.TOPOLOGY, r"Cannot replace the node, because the existing topologyAssignment is invalid[^;]*"),
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
_WHOLE: tuple[tuple[Code, str], ...] = (
    (
        Code.WAITING_FOR_VICTIMS,
        r"Workload has overlapping preemption targets with another workload, "
        r"but will fit after these preemptions complete",
    ),
    *((Code.CONTENTION, pattern) for pattern in _CONTENDED),
    (Code.NAMESPACE, r"[Ww]orkload namespace doesn't match ClusterQueue selector"),
    (Code.NAMESPACE, r'workload namespace "[^"]*" does not exist: .*'),
    (Code.NAMESPACE, r"Could not obtain workload namespace: .*"),
    (Code.QUEUE_STOPPED, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is stopped"),
    (Code.QUEUE_STOPPED, r"The (?:ClusterQueue|LocalQueue) is stopped"),
    (Code.QUEUE_INACTIVE, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is inactive"),
    (
        Code.QUEUE_MISSING,
        r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) (?:doesn't exist|not found|is terminating or missing)",
    ),
    (Code.DEACTIVATED, r"The workload is deactivated.*"),
    (Code.DEACTIVATED, r"Deactivat(?:ing|ed) [Ww]orkload .*"),
    *((Code.EVICTED, pattern) for pattern in _EVICTED),
    (Code.QUEUED, r"Workload is pending evaluation in the scheduling queue"),
    (Code.QUEUED, r"AdmissionGatedBy cleared, waiting for quota reservation"),
    (Code.QUEUED, r"The workload has no reservation(?: and not all checks ready)?"),
    (Code.PARKED, r"Bypassed scheduling evaluation because an equivalent workload recently failed"),
    (Code.GATED, r"Admission is gated by: (?P<name>.*)"),
    (Code.GATED, r"Workload requires preemption, but it's gated"),
    (Code.INVALID, r"resources validation failed: .*"),
    (Code.INVALID, r"resources didn't satisfy LimitRange constraints: .*"),
    (Code.FLAVOR_MISMATCH, r"Target flavor is below LastAcceptableFlavorName"),
    (Code.CHECKS, r"The workload has failed admission checks"),
    (Code.CHECKS, r"The workload has not all checks ready"),
    (Code.PODS_READY, r"[Ww]aiting for all admitted workloads to be in (?:the )?PodsReady condition"),
)
WHOLE = tuple((code, re.compile(pattern)) for code, pattern in _WHOLE)
