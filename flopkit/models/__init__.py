"""Whole networks as trees of layers."""
