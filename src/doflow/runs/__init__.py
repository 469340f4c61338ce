"""Runs: finding them, their context, record, lock and files."""
