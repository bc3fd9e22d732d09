"""Networks: by name, from checkpoints of many sources, and how images are normalised for them."""
