"""Formats of other tools: what a project has of them, and flows made from it. Their files are only read."""
