"""The direct plane: tasks are sent to nodes at once, as the techniques that Sparrow is compared with do."""
