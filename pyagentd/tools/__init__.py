"""What an agent can do: tools as data, their one boundary, and the built-in tools.

Kept free of imports: the search worker is started as a module of this package and must start fast.
"""
