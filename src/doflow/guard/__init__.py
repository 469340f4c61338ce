"""Guards: rules that protect the repository and doflow's state."""
