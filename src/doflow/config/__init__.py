"""A project and its settings."""
