"""Models: one streaming protocol over every provider, retries, and the offline stand-in.

``backend`` holds the vocabulary and ``factory`` makes backends; neither imports a provider's SDK, which takes about a
second. ``warm`` is the one place that does, in a background thread.
"""
