"""DOT texts that several tests read."""

from __future__ import annotations

#: the node that the requirements show in full
NODE = """\
    impl_auth [
        handler="codergen"
        shape=box
        status="pending"
        bead_id="AUTH-042"
        worker_type="backend-solutions-engineer"
        prd_ref="PRD-AUTH-001"
        prd_section="Epic 2: JWT Authentication"
        solution_design=".claude/documentation/SOLUTION-DESIGN-AUTH.md"
        target_dir="zenagent/agencheck/agencheck-support-agent"
        acceptance="JWT auth with refresh tokens, unit tests pass, no hardcoded secrets"
        promise_ac="AC-2"
    ]
"""
