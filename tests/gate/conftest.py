from __future__ import annotations

import sys
from pathlib import Path

# The workers import their targets by name, and look where this process looks.
sys.path.insert(0, str(Path(__file__).parent))
