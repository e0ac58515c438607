"""Workflows on many engines, beside the thesis's figures."""
