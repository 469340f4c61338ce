"""Agents: one program that does steps, per file. `contract` says what a file offers, `registry` lists them."""
