"""Hooks: what Claude Code and Codex ask us while they work, and how they come to ask.

`door` and `hook` are the way of a question: a process of its own for every call, with next to no imports. `rules` decides,
`store` keeps. The rest is for people and runs: `machines` reads and proves, `settings` and `install` make an agent ask,
`transcript` looks afterwards at what really ran.
"""
