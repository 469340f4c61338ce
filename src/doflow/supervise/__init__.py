"""Supervision of pipelines: a terminal guardian (`terminal`) starts guardians (`guardian`), a guardian starts a runner per
node (`runner`), a runner watches the orchestrator in its pane. They talk by signals; each can die and be started again."""
