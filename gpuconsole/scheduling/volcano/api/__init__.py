"""What a session holds: resources with Volcano's tolerances, tasks, jobs and sub-jobs, nodes, queues, hyper nodes."""
