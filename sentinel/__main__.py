"""`python -m sentinel`."""

from sentinel.cli import main

main()
