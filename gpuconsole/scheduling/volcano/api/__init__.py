"""Data of a session: resources with Volcano's tolerances, tasks, jobs and sub-jobs, nodes, queues, hyper nodes."""
