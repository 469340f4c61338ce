"""Running one step, one kind per file."""
