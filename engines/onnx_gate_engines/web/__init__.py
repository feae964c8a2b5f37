"""ONNX Runtime Web in a browser: ``runtime.py`` is what the gate sees of it."""
