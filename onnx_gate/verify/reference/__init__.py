"""What PyTorch says of a case: its answer, the same in float64, and its other answers."""
