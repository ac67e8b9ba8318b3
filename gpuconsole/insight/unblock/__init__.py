"""What would let a waiting workload in: single changes, each tried in a fork before anybody is told of it."""
