"""GPU telemetry of a live cluster: from a Prometheus that scrapes DCGM exporters, or from the exporters themselves."""
