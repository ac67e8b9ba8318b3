"""The terminal console: screens draw Snapshots and turn keys into Commands."""
