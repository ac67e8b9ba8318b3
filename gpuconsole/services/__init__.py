"""What runs beside the screens: the loop, the facade that the screens talk to."""
