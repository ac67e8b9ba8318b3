"""An operator console for GPU clusters, live or simulated, operated from the keyboard."""

__version__ = "0.2.0"
