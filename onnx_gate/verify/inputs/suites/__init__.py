"""Input suites, one kind a file, found through the entry-point group ``onnx_gate.suites``."""
