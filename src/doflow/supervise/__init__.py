"""Supervision of pipelines: a terminal guardian (`guardian.terminal`) starts guardians (`guardian.loop`), a guardian
starts a runner per node (`runner.loop`), a runner watches the orchestrator in its pane. They talk by signals; each can
die and be started again."""
