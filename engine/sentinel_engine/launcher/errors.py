"""Errors of the launcher; each text says what the operator can do next."""


class LaunchError(Exception):
    """Base of everything the launcher raises on purpose."""


class BadCluster(LaunchError):
    """The cluster file cannot be used."""


class NodeLost(LaunchError):
    """A node could not be reached, or did not answer in time."""


class Refused(LaunchError):
    """A node or the launcher declined, and changed nothing."""
