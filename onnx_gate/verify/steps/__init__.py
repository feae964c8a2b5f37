"""Calls in a row: outputs come back as inputs, on each side its own."""
