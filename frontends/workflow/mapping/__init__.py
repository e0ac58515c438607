"""Which engines run a workflow: sizes, rates, costs, history, and the cheapest partition into jobs (§3.5)."""
