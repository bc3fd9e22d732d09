"""Networks by name and from checkpoints of many sources, with the normalization of their inputs."""
