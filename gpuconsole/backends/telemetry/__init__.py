"""GPU telemetry of a live cluster: from a Prometheus that scrapes DCGM's exporters, or from those themselves."""
