"""One job: attempt, contract, outcome, commit."""
