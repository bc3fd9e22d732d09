"""Commands on top of the library: ``demo``, ``gallery``, ``augment`` and ``doctor``."""
