"""Verbs for a project and its settings."""
