"""Numbers alone: two arrays compared in one pass, errors scaled, sums kept, ULPs counted."""
