"""Programs, and functions of an Emacs, that are asked and told at five moments."""
