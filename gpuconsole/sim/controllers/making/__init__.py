"""Jobs that make jobs: services whose parts are admitted one by one, and CronJobs; TrainJobs and their runtimes."""
