"""The cases that a model is tried on: sizes, suites, values."""
