"""History in SQLite: every event is kept, nothing is lost on kill -9."""
