"""What a run prints while it works."""
