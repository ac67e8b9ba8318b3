"""Formats numbers for people: the only place where the console writes `8Gi`, `73%`, `12m` or `$7.70`."""

from datetime import UTC, datetime, timedelta

from gpuconsole.insight.index.fragmentation import LargestGang
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Span, Time
from gpuconsole.model.resources import CPU, GPU, format_quantity, is_binary

NOTHING = "–"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SHORT = {GPU: "gpu", "memory": "mem", "ephemeral-storage": "disk"}


def number(value: int | float) -> str:
    """A count with a thousands separator: `15,000`."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def mean(value: float) -> str:
    """A mean count, with at most one decimal: `15,000`, `7.5`."""
    return f"{value:,.1f}".removesuffix(".0")


def percent(part: float, whole: float) -> str:
    """`75%`, or a dash where the whole is 0."""
    return f"{100 * part / whole:.0f}%" if whole else NOTHING


def age(span: Span) -> str:
    """A short duration: `45s`, `12m`, `3h10m`, `2d4h`."""
    if span < MINUTE:
        return f"{max(0, span) // SECOND}s"
    if span < HOUR:
        minutes, seconds = divmod(span // SECOND, 60)
        return f"{minutes}m{seconds:02}s" if minutes < 10 else f"{minutes}m"
    if span < DAY:
        return f"{span // HOUR}h{span % HOUR // MINUTE:02}m"
    return f"{span // DAY}d{span % DAY // HOUR}h"


def since(now: Time, then: Time) -> str:
    """Time from `then` to `now`; a dash if `then` is unset."""
    return age(now - then) if then else NOTHING


def clock(time: Time) -> str:
    """The time of day in UTC: `09:14:20`."""
    return f"{_EPOCH + timedelta(microseconds=time):%H:%M:%S}"


def date_and_clock(time: Time) -> str:
    """Day and time in UTC: `Mon 5 Jan 09:14:20`."""
    moment = _EPOCH + timedelta(microseconds=time)
    return f"{moment:%a} {moment.day} {moment:%b %H:%M:%S}"


def date_and_minute(time: Time) -> str:
    """Date and time in UTC, without seconds: `5 Jan 09:14`."""
    moment = _EPOCH + timedelta(microseconds=time)
    return f"{moment.day} {moment:%b %H:%M}"


def amount(resource: str, value: int) -> str:
    """An amount of a resource in at most about six characters: `8`, `1.5k`, `512Gi`, `32` CPUs."""
    if resource == CPU:
        return f"{value / 1000:,.0f}" if value % 1000 == 0 or abs(value) >= 100_000 else f"{value / 1000:.1f}"
    if not is_binary(resource):
        return number(value) if abs(value) < 10**9 else format_quantity(resource, value)
    power, scaled = 0, float(value)
    while abs(scaled) >= 1024 and power < len(_BINARY) - 1:
        scaled /= 1024
        power += 1
    return (
        f"{scaled:.0f}{_BINARY[power]}" if scaled == int(scaled) or scaled >= 100 else f"{scaled:.1f}{_BINARY[power]}"
    )


def limit(resource: str, value: int | None) -> str:
    """A borrowing or lending limit; `∞` where there is none."""
    return "∞" if value is None else amount(resource, value)


def resource(name: str) -> str:
    """A resource's name, short: `gpu`, `mem`, `mig-1g.10gb`, `cpu`."""
    return _SHORT.get(name) or name.rpartition("/")[2]


def money(dollars: float, *, cents: bool = False) -> str:
    """US dollars: `$7.70`, `$12,300`, `-$3.00`; with `cents` also those of large amounts, as a bill has them."""
    sign = "-" if dollars < 0 else ""
    return f"{sign}${abs(dollars):,.2f}" if cents or abs(dollars) < 1000 else f"{sign}${abs(dollars):,.0f}"


def gpu_hours(gpu_seconds: float) -> str:
    """Lost or used GPU time: `3.5 GPU-hours`."""
    return f"{gpu_seconds / 3600:,.1f} GPU-hours"


def not_saved(gpu_time: Span | None) -> str:
    """Format the work that an eviction loses: `~3.5 GPU-hours of work lost`. `gpu_time` is None where it is unknown."""
    return "lost work unknown" if gpu_time is None else f"~{gpu_hours(gpu_time / SECOND)} of work lost"


def factor(speed: float) -> str:
    """A speed: `×60`, `×1,000`, `×0.5`."""
    return f"×{speed:,.0f}" if speed >= 1 else f"×{speed:g}"


def permille(value: float) -> str:
    """Format a weighted share (DRS), given in thousandths; `max` where a weight of 0 makes it infinite."""
    return "max" if value == float("inf") else f"{value:,.0f}"


def repeats(count: int, span: Span) -> str:
    """How often an event was repeated, and in what time: `×20 in 34s`; empty for once."""
    return f"×{number(count)} in {age(span)}" if count > 1 else ""


def gpus(count: int) -> str:
    """A number of GPUs: `1 GPU`, `8 GPUs`."""
    return "1 GPU" if count == 1 else f"{number(count)} GPUs"


def gang(largest: LargestGang | None) -> str:
    """The largest gang, short: `4 × 8` is four pods of eight GPUs; a dash for none."""
    return f"{largest.pods} × {largest.gpus}" if largest is not None else NOTHING


def gang_with_limits(largest: LargestGang | None) -> str:
    """The largest gang with its flavor and its limits: `2 × 8 h100 GPUs (nodes 3, quota 2)`; `none` for none."""
    if largest is None:
        return "none"
    kind = largest.flavor or largest.model
    unit = f"{largest.unit}{'' if largest.gpus == 1 else 's'}"
    quota = f", quota {number(largest.by_quota)}" if largest.by_quota is not None else ""
    return f"{gang(largest)} {f'{kind} ' if kind else ''}{unit} (nodes {number(largest.by_nodes)}{quota})"
