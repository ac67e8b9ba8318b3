"""The embedded simulator: discrete-event, deterministic for a seed, forkable."""
