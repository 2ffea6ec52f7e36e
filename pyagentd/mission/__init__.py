"""Typed missions: work delegated under a contract to a model that writes programs (SPEC 004)."""
