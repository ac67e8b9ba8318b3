"""Answers, as data: each module takes Snapshots and returns a struct."""
