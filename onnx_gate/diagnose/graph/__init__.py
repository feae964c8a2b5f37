"""An ONNX graph taken apart: its nodes run alone, and its values."""
