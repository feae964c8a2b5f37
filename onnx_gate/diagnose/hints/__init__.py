"""What is likely wrong, told from facts of the divergence."""
