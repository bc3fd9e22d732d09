"""PRIME in the training loops of other libraries: ``timm``, ``lightning`` and ``huggingface``, one module for each.

Each module imports its library, which the extra of its name installs; none is imported before it is asked for.
"""
