"""Bounded reading of YAML and JSON documents, typed access to their values, and findings with positions."""
