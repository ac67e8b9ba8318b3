"""Anti-patterns: findings about wasted GPUs and waiting time, with evidence, daily cost and fix. Pure."""
