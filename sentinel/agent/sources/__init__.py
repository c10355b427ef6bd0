"""Live sources, one a file. They read; the parsers of `collectors/` understand."""
