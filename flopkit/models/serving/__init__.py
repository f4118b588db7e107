"""Prefill and decode of a model."""
