"""The shells around the coordinator's core: the one that leads, and the hand on each host that obeys."""
