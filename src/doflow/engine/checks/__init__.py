"""Output contracts: one per file."""
