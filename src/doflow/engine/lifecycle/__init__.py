"""A run from start to finish, and recovery after a crash."""
