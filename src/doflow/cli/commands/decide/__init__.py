"""Verbs by which a person decides."""
