"""Parts that several descriptions share: labels, amounts, pods, taints."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import Resources, format_quantity, short
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, field, heading, text_line


def mapped(title: str, values: Mapping[str, object]) -> list[Painted]:
    """Labels, annotations or another mapping under one title."""
    titles = [title, *[""] * len(values)]
    return [field(name, f"{key}={value}") for name, (key, value) in zip(titles, values.items(), strict=False)]


def amounts(resources: Resources) -> str:
    """Resource amounts, separated by commas."""
    return ", ".join(f"{name} {format_quantity(name, resources[name])}" for name in short(resources)) or "none"


def pod_list(pods: Iterable[Pod]) -> list[Painted]:
    """A line for each pod, with its node and GPUs."""
    lines = [BLANK, heading("Pods")]
    for pod in pods:
        indices = " GPU " + ",".join(map(str, pod.gpus)) if pod.gpus else ""
        lines.append(text_line(f"  {pod.name}  {pod.phase}  {pod.node or '–'}{indices}"))
    return lines if len(lines) > 2 else []


def taint_list(taints: Iterable[Any]) -> list[Painted]:
    """A line for each taint."""
    return [field("Taint", f"{taint.key}={taint.value}:{taint.effect}") for taint in taints]
