"""What there is to be said of a report, once: decided here, shown by ``render``."""
