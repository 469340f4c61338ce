"""Benchmarks: the cost of doflow compared with other tools."""
