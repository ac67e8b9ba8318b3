"""An operator console for GPU clusters: live or simulated, drivable from the keyboard."""

__version__ = "0.2.0"
