"""What a model is made of: what stands before, in, between and behind its layers, and the pass through them."""
