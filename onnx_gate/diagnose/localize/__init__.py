"""Where an error is first wrong: the node, by names or by values."""
