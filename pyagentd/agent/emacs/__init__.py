"""What the user's Emacs shows and can do, for the tools of a run: asked by an event, answered by an operation."""
