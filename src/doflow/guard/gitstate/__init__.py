"""Protection of git's own files and refs."""
