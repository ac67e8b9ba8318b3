"""The embedded cluster: discrete events, deterministic for a seed, forkable."""
