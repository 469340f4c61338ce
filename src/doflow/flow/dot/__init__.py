"""DOT pipelines: a graph in a `.dot` file whose nodes are steps and whose statuses stand in the file itself.

`parser.read(path)` gives a `Pipeline`, `order.ready(pipeline)` the nodes that can begin, `transitions.transition(path,
node, status)` writes a status back (and its line in `<dot>.transitions.jsonl`, and the checkpoint),
`validate.check(pipeline)` says what is wrong. Comments and layout of the file are kept: every value knows its place in
the text."""
