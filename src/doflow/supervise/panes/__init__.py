"""Agents in tmux panes: `tmux` wraps libtmux, `launcher` runs inside the pane, `programs` builds the command of each agent,
`agent_pane` is one agent in one pane from start to end, `screen` reads what it shows."""
