"""Helpers that know nothing of flows, runs or agents."""
