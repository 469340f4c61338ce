"""Child processes: starting, supervising and stopping them, their environment and their logs."""
