"""Hooks: what Claude Code and Codex ask us while they work, and how they come to ask.

`entry` and `handler` are the way of a question: a process of its own for every call, with next to no imports.
`state_machine` decides, `session_store` keeps. The rest is for people and runs: `machine_loader` reads and proves,
`call_settings` and `install` make an agent ask, `transcript` looks afterwards at what really ran."""
