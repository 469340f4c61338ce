"""What is recorded of a run: event log, lockfile, fingerprints, usage."""
