"""Preemption: finds the victims that a workload needs (Kueue 0.19 pkg/scheduler/preemption)."""

from gpuconsole.scheduling.kueue.preemption.classical import find_targets, preemption_possibility
from gpuconsole.scheduling.kueue.preemption.search import PreemptionSearch, PreemptionTarget

__all__ = ["PreemptionSearch", "PreemptionTarget", "find_targets", "preemption_possibility"]
