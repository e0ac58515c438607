"""What programs over arrays cost to schedule, beside the papers' figures."""
