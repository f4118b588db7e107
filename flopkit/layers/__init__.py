"""Closed forms of the layers that networks are made of."""
