"""Training by the paper's recipes: data, networks, losses, baselines, checkpoints and the loop itself."""
