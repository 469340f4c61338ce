"""The bridge to doit: its commands, our flows as its tasks, what it knows about files."""
