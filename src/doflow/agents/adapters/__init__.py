"""One agent program per module."""
