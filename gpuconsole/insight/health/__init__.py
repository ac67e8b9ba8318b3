"""Alerts, telemetry, trends, and the liveness of Kueue."""
