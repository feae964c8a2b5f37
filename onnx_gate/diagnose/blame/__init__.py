"""Which link of the chain from module to runtime breaks first."""
