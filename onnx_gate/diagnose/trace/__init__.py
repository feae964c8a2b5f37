"""PyTorch's intermediate values, recorded, each with where it comes from."""
