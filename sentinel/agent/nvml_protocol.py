"""What the process that asks the driver and the one that listens to it have agreed on; imports nothing heavy."""

NO_DRIVER = 3
"""Exit status: there is no driver or library here, and asking again will not help."""
