"""The scheduling engines: sessions without I/O that take objects and return decisions."""
