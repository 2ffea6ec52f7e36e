"""What an agent can do: tool specifications, their one boundary, and the built-in tools.

Kept free of imports: the search worker is started as a module of this package and must start fast.
"""
