"""Flows: the model, the plan, expansion, task lists and diagrams."""
