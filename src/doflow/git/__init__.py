"""Git: where a project stands (`repository`), asking git (`runner`), committing (`commit`, `wip`), reading back
(`history`)."""
