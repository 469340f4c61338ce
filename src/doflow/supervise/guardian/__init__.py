"""The guardian: supervises the runners of a pipeline."""
