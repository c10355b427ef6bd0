"""Judgement: pure functions over frozen observations. No clock, I/O, logging, thread or subprocess in here."""
