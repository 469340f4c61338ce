"""Agents in tmux panes: `tmux` is the door, `launcher` runs inside the pane, `programs` knows how each agent is started
there, `agent_pane` is one agent in one pane from start to end, `screen` reads what it shows."""
