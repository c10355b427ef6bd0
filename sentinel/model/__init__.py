"""Nouns: frozen, typed, without behaviour beyond derived properties. Imports nothing else of this package."""
