"""What the gate would have caught: faults seeded into a graph, judged by the manifest as it is."""
