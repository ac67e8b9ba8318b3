"""Borrowed and lent quota, fair shares, schedulable slots."""
