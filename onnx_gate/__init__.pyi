"""What editors and type checkers see of the package; see ``__init__.py``."""

from onnx_gate.api import ParityError as ParityError
from onnx_gate.api import assert_parity as assert_parity
from onnx_gate.api import check_parity as check_parity

__version__: str
