"""Data model of a KAI session: requests, tasks, pod sets, jobs, and nodes with shared GPUs."""
