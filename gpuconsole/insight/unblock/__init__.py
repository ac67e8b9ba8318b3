"""Suggestions that would unblock a pending workload: changes, each tried in a fork before it is shown."""
