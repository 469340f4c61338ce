"""Reading flows: YAML, schema, inheritance, building and static checks."""
