"""Sentinel: watchdog and hang forensics for multi-node LLM inference."""

__version__ = "0.1.0"
