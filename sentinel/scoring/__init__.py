"""Scoring: runs the analyser over labelled evidence folders and compares its verdicts with the labels.

A case is a folder with `expected.yaml` and `evidence/`. The analyser is handed a copy of `evidence/` under a neutral
path, so that no name of a case can reach it.
"""
