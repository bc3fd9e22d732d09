"""YAML of settings, as ``yaml.safe_load`` reads it, but that a key that comes twice is an error.

PyYAML is imported in the functions: the help of commands works without it.
"""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["dump", "load"]


def load(text: str) -> Any:
    """The content of a document.

    Raises:
        ValueError: It is not YAML, or a mapping in it has a key twice; the message has the line.
    """
    import yaml

    try:
        return yaml.load(text, _loader())
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def dump(content: Any) -> str:
    """A document with the keys in their order."""
    import yaml

    return str(yaml.safe_dump(content, sort_keys=False))


@functools.cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():  # super() refuses others
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if (key.tag, key.value) in seen:
                        twice = f"{key.value!r} comes twice"
                        raise yaml.constructor.ConstructorError(None, None, twice, key.start_mark)
                    seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    return Loader
