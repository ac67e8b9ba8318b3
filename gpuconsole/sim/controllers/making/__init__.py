"""Jobs that create jobs: services whose replicas are admitted one by one, CronJobs; TrainJobs and their runtimes."""
