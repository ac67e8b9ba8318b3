"""What the console promises of its speed, measured: `make bench`."""
