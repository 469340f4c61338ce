"""Hooks of Claude Code and Codex that enforce the order of sub-agents and guard the files they write.

Each call starts a process: `entry` and `handler` import almost nothing. `state_machine` decides, `session_store` keeps the
state. `machine_loader` loads and checks machines, `call_settings` and `install` configure the hooks of an agent."""
