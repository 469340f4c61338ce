"""The write fence around agents and commands."""
