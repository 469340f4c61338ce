"""Everything that talks to git: `repository` runs it through GitPython, `head_reader` finds where a project stands,
`commit` commits, `history` reads back."""
