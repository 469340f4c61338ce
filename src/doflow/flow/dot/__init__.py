"""DOT pipelines: a graph in a `.dot` file whose nodes are steps; their statuses are in the file itself.

`parser.read_pipeline(path)` returns a `Pipeline`, `order.ready_nodes(pipeline)` the nodes that are ready to run,
`transitions.transition(path, node, status)` writes a status (with a line in `<dot>.transitions.jsonl`, and the checkpoint),
`validate.check_pipeline(pipeline)` returns the problems. Comments and layout are kept: every value has its position in the
text."""
