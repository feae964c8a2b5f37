"""Verdicts and exports of earlier runs, and everything that has to be as it was for them to hold."""
