"""The facade that the screens use, and what runs in the background: loop, forecasts, port-forwards."""
