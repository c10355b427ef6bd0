"""Drills on the co-packaged engine: the real thing, launched by its own launcher and loaded by streaming clients."""
