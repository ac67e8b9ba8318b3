"""Alerts: problems that need an operator's attention, and their kinds."""

from enum import StrEnum

from msgspec import Struct


class AlertKind(StrEnum):
    """Kinds of problems, the most urgent first."""

    KUEUE = "kueue"
    """Kueue itself does not work."""
    DEADLOCK = "deadlock"
    NODE_DOWN = "node-down"
    GPU_FAULT = "gpu-fault"
    QUEUE_INACTIVE = "admits-nobody"
    THRASH = "thrash"
    STARVED = "starved"
    GANG = "gang"
    UNSCHEDULABLE = "unschedulable"
    CHECKS = "checks"
    LONG_WAIT = "long-wait"
    GPU_HOT = "gpu-hot"
    GPU_UNUSED = "gpu-unused"
    GPU_WASTED = "gpu-wasted"
    OVERSIZED = "oversized"
    LOW_UTILIZATION = "low-utilization"
    MONOPOLY = "monopoly"
    IDLE_GPUS = "idle-gpus"
    RECLAIMABLE = "reclaimable"
    IDLE_NODE = "idle-node"


class Alert(Struct, frozen=True, kw_only=True):
    """One problem; `table` and `key` name the object to open, if there is one."""

    trouble: AlertKind
    text: str
    table: str = ""
    key: str = ""
    gpus: int = 0
