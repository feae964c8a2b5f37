"""The ONNX file of a module: made, reused, or taken as it is."""
