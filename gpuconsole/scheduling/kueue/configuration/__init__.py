"""Kueue's Configuration file: read, defaulted and checked as Kueue 0.19 does; and what admission uses of it."""
