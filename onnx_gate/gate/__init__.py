"""Many models: order, isolation, and the memory of past runs."""
