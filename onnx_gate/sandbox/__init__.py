"""Keeping the models' code from everything that is not its own (Linux)."""
