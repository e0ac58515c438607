"""The node monitor's HTTP."""
