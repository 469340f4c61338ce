"""Workspaces: where the programs of a job run, and how their accepted changes reach the project."""
