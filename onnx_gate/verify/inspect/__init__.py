"""What can be seen in a file before it is run."""
