"""What users of other libraries have there and here, beside each other: `python -m benchmarks.habits`."""
