"""Confines commands to the scope of their agent: which files they see, and which network addresses they reach."""
