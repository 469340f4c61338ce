"""The working tree before and after a step."""
