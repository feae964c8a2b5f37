"""Engines that run an ONNX model, found through the entry-point group ``onnx_gate.runtimes``."""
