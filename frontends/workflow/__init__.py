"""Workflows over tables: written once, in any of several languages, and run on the engine that does them fastest."""
