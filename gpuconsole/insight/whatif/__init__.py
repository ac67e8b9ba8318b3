"""What-ifs, comparisons of engines, and capacity plans, simulated in forks."""
