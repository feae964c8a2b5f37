"""Engines beside the gate's own: a browser, and those that a file is converted for."""
