"""Parsing flows: YAML, schema validation, `extends`, building and static checks."""
