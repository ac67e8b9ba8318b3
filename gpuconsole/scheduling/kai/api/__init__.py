"""Data model of a KAI session: requests, tasks, pod sets, jobs, nodes with shared GPUs, queues."""
