"""Supervision of pipelines: a terminal guardian (`guardian.terminal`) starts guardians (`guardian.loop`), a guardian starts
a runner per node (`runner.loop`), a runner watches the orchestrator in its tmux pane. They communicate through signal files
(`signal_store`, `signal_watch`); each of them can be killed and started again."""
