"""Starts, shows and stops one engine on several nodes from one file, `cluster.toml`."""
