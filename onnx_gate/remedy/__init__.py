"""What would make a red model green, tried on a copy before it is proposed."""
