"""Scalar expressions: what a row's columns and constants are computed into."""
