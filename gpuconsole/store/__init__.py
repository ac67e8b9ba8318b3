"""History in SQLite: every event is stored, and survives kill -9."""
