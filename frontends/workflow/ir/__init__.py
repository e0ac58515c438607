"""What a workflow is and means: its intermediate representation, the text of that, and the interpreter that defines it."""
