"""Reads, defaults and validates Kueue's Configuration as Kueue 0.19 does, and extracts the settings for admission."""
