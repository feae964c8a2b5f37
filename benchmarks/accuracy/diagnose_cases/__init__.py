"""Diverging exports whose guilty node is known: what a diagnosis is measured on."""

from __future__ import annotations

from .case import DivergingCase
from .cases import CASES

__all__ = ["CASES", "DivergingCase"]
