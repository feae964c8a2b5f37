"""Processes that run one task each, with limits; what the task is, nobody here knows."""
