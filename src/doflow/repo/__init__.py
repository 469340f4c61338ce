"""Git: where a project stands (`look`), asking git (`git`), committing (`commit`, `wip`), reading back (`history`)."""
