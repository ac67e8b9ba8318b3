"""Anti-patterns of a cluster, as data: what wastes GPUs or patience, with evidence, price and remedy. Pure."""
