"""Guards: rules that protect the repository, the state and the purse; one per file."""
