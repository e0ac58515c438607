"""What a workflow is and means: its intermediate representation, its text, and the interpreter that defines it."""
