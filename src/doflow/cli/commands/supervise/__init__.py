"""Verbs for pipelines, guardians and hooks."""
