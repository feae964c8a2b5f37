"""One model from build to verdict."""
