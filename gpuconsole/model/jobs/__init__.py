"""Job kinds as pod sets, and what Kueue makes of them."""
