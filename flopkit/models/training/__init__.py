"""The training steps of a model: what is trained, kept, computed again and gathered."""
