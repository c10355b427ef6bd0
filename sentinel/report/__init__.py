"""Rendering: a verdict and the picture behind it as terminal text or as one HTML file. Pure functions, no judgement."""
