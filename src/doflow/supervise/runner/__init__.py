"""The runner: supervises one orchestrator in its pane."""
