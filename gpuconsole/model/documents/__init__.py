"""Documents as they stand in files: bounded reading of YAML and JSON, typed access, findings with positions."""
