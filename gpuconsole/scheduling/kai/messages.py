"""Messages of KAI 0.13, word for word (api/unschedule_info)."""

from gpuconsole.scheduling.kai.api.queues import UNLIMITED

_GB, _CORE = 1_000_000_000, 1000


def number(value: float, unit: float = 1) -> str:
    """A number in a unit, truncated to three decimals; -1 is Unlimited."""
    if value == UNLIMITED:
        return "Unlimited"
    return digits(value / unit)


def digits(value: float) -> str:
    """At most three decimals, truncated."""
    whole, _, rest = f"{value:.6f}".partition(".")
    rest = rest[:3].rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def over_limit(queue: str, name: str, limit: float, used: float, requested: float) -> str:
    """A queue's limit of a resource does not allow the request."""
    obj, unit, scale = {
        "GPU": ("GPUs", "GPUs", 1),
        "CPU": ("CPU cores", "cores", _CORE),
        "Memory": ("memory", "GB", _GB),
    }[name]
    return (
        f"{queue} quota has reached the allowable limit of {obj}. Limit is {number(limit, scale)} {unit},"
        f" currently {number(used, scale)} {unit} allocated and workload requested {number(requested, scale)} {unit}"
    )


def over_quota(queue: str, name: str, deserved: float, used: float, requested: float) -> str:
    """A non-preemptible request exceeds a queue's quota of a resource."""
    obj, unit, scale = {
        "GPU": ("GPUs", "GPUs", 1),
        "CPU": ("CPU cores", "cores", _CORE),
        "Memory": ("GB memory", "GB", _GB),
    }[name]
    asked = f"{requested:g}" if name == "GPU" else number(requested, scale)
    return (
        f"Non-preemptible workload is over quota. Workload requested {asked} {obj}, but {queue} quota is"
        f" {number(deserved, scale)} {unit}, while {number(used, scale)} {unit} are already allocated for"
        " non-preemptible pods. Use a preemptible workload to go over quota."
    )


def preempted(pod: str, by: str) -> str:
    """Eviction by the preempt action."""
    return f"Pod {pod} was preempted by higher priority workload {by}"


def reclaimed(pod: str, by: str) -> str:
    """Eviction by the reclaim action."""
    return f"Pod {pod} was preempted by workload {by}."


def consolidated(pod: str) -> str:
    """Eviction by the consolidation action."""
    return f"Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def gang_evicted(pod: str, minimum: int, sub_group: str = "") -> str:
    """Eviction of a stale gang's pod."""
    where = f" in sub-group {sub_group}" if sub_group else ""
    return (
        f"Workload doesn't meet the minimum required number of pods ({minimum}){where}, evicting remaining pod: {pod}"
    )


def queue_use(
    queue: str, used: dict[str, float], quota: dict[str, float], fair: dict[str, float], priority: int
) -> str:
    """Usage, quota, fair share and priority of a queue."""
    return (
        f"{queue} uses <{_amounts(used)}> with a quota of <{_amounts(quota)}>, fair-share of <{_amounts(fair)}>"
        f" and queue priority of <{priority}>."
    )


def _amounts(of: dict[str, float]) -> str:
    return (
        f"GPU: {number(of['GPU'])}, CPU: {number(of['CPU'], _CORE)} (cores), memory: {number(of['Memory'], _GB)} (GB)"
    )


def insufficient(obj: str, requested: str, used: str, capacity: str, gang: bool) -> str:
    """A node has too little of a resource; without numbers for gangs."""
    if gang:
        return f"Node didn't have enough resources: {obj}, taking all considerations into account"
    return f"Node didn't have enough resources: {obj}, requested: {requested}, used: {used}, capacity: {capacity}"
