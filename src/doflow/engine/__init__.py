"""Doing the steps of a run."""
