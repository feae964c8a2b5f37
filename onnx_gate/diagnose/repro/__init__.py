"""A divergence as a folder that anyone can replay, cut down to what shows it."""
