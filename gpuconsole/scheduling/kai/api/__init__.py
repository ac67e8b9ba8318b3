"""What a KAI session works on: requests, tasks, pod sets, jobs, nodes with shared GPUs, queues."""
