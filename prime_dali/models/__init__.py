"""Networks by name and from checkpoints of many sources, with the normalization of their inputs."""

STEMS = ("imagenet", "cifar")
"""First layers of torchvision's ResNets: those of the published networks, and those for images of 32 x 32 pixels."""
