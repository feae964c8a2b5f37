"""What was verified of which file, as in-toto statements, and what a deployment asks of them."""
