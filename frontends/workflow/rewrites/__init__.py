"""Rewrites of workflows: each changes a DAG and no result (§3.3.1)."""
