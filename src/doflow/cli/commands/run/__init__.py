"""Verbs that run flows and show runs."""
