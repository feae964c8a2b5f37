"""The tables of the documentation, a file for each theme."""
