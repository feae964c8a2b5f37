"""Since when: the release, or the package, that changed what a model answers."""
