"""The values of a manifest: what each may be, what an editor is told of it, and what it becomes.

A mapping is a frozen dataclass, which is what the rest of the gate knows; the types of its fields say
how each is read from YAML, and described.
"""
