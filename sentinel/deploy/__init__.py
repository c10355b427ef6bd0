"""Putting Sentinel on a host: the units and what they need, hazards of doing so, and a doctor for what is there."""
