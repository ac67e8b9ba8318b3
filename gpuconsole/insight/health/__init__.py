"""Alerts, anti-patterns, GPU telemetry, names of the engines, and the liveness of Kueue."""
