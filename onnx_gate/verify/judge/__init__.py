"""A candidate against its reference: tolerances applied, verdicts reached."""
