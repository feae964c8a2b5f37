"""A first manifest for a model: what its ``forward`` takes, found out by trying or by recording."""
