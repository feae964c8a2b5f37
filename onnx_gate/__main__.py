"""``python -m onnx_gate``."""

from onnx_gate.cli import main

if __name__ == "__main__":
    main()
