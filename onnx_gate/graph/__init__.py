"""One ONNX graph: opened, walked, run node by node, changed, cut."""
