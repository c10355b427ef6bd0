"""Sentinel's own metrics: what there is (`registry`), counting (`tally`), formats, and the page that serves them."""
