"""Weights of resources in arguments of the form `PREFIX.cpu`, `PREFIX.resources: a, b` and `PREFIX.resources.a`."""

from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments


def resource_weights(arguments: VolcanoArguments, prefix: str) -> dict[str, int]:
    """The weight of cpu, memory and each listed resource; 1 if it is missing or negative."""
    listed = [name.strip() for name in arguments.text(f"{prefix}.resources", "").split(",")]
    keys = {name: f"{prefix}.resources.{name}" for name in listed if name}
    keys |= {CPU: f"{prefix}.cpu", MEMORY: f"{prefix}.memory"}
    weights = {name: arguments.integer(key, 1) for name, key in keys.items()}
    return {name: weight if weight >= 0 else 1 for name, weight in weights.items()}
