"""Agents for Emacs that outlive Emacs: the daemon's package."""

__version__ = "0.1.0"
