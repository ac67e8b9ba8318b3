"""Every table that is compared, by `AREA/TEST`."""

from tests.conformance import amounts, assigning, cycle, limits, ordering, preemption, quotas, topology, workloads
from tests.conformance.tables import Check

CHECKS: dict[str, Check] = {
    **cycle.CHECKS,
    **ordering.CHECKS,
    **preemption.CHECKS,
    **assigning.CHECKS,
    **quotas.CHECKS,
    **topology.CHECKS,
    **workloads.CHECKS,
    **limits.CHECKS,
    **amounts.CHECKS,
}
