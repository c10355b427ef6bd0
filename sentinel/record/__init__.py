"""What is kept: the journal, its replay, and incident bundles."""
