"""The bridge to doit: command, tasks, actions, backend."""
