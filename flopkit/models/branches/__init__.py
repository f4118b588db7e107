"""What stands in a layer: attention, layers with a state, MLPs, experts."""
