"""Whether a step is up to date."""
