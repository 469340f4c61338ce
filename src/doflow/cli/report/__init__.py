"""Reports that commands print."""
