"""DOT pipelines: a graph in a `.dot` file whose nodes are steps and whose statuses stand in the file itself.

`reading.read(path)` gives a `Pipeline`, `graph.ready(pipeline)` the nodes that can begin, `moves.transition(path, node,
status)` writes a status back (and its line in `<dot>.transitions.jsonl`, and the checkpoint), `checks.check(pipeline)`
says what is wrong. Comments and layout of the file are kept: every value knows its place in the text.
"""
