"""What a node monitor uses of its machine: accounts, access lists, resources, the removal of files."""
