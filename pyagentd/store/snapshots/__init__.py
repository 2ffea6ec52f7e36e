"""What files were before and after an agent changed them: git objects in a private store of our own.

Nothing here runs git, and nothing knows of the repository a file may belong to: contents are stored as they are on
disk, without filters and attributes. ``objects`` and ``tree`` are the store, ``scan`` makes the tree of a workspace,
``records`` says which call changed what, ``plan`` what undoing that means, ``prune`` forgets.
"""
