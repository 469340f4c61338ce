"""How much doflow costs beside the tools it stands next to, measured side by side."""
