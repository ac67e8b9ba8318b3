"""The scheduling engines: pure sessions that take facts and return decisions."""
