"""The DALI interface: PRIME as one line of a pipeline definition.

::

    @pipeline_def(batch_size=256, num_threads=8, device_id=0)
    def training_pipeline():
        jpegs, labels = fn.readers.file(file_root=..., random_shuffle=True)
        images = fn.decoders.image_random_crop(jpegs, device="mixed")
        images = fn.resize(images, size=(224, 224))
        return prime_dali.dali.prime(images, "imagenet", seed=1, mean=..., std=...), labels

Complete pipelines over folders or shards of images, and a loader that returns their batches as torch tensors::

    loader = Loader(train_pipeline("train", "imagenet", batch_size=256, seed=1))
    for images, labels, index in loader:
        ...
"""

from .. import _extras

try:
    import nvidia.dali  # noqa: F401 -- only whether it is installed
except ImportError as error:
    raise ImportError(f"prime_dali.dali needs NVIDIA DALI: {_extras.install('dali-cuda13')}") from error

from .loader import Batch, Loader
from .native import arguments, build_plugin, load_plugin, plugin_path
from .operator import prime
from .pipelines import ImagePipeline, train_pipeline, val_pipeline
from .settings import Augmentation, CenterCrop, Execution, Output, RandomCrop
from .sources import Reader, Source

__all__ = [
    "Augmentation",
    "Batch",
    "CenterCrop",
    "Execution",
    "ImagePipeline",
    "Loader",
    "Output",
    "RandomCrop",
    "Reader",
    "Source",
    "arguments",
    "build_plugin",
    "load_plugin",
    "plugin_path",
    "prime",
    "train_pipeline",
    "val_pipeline",
]
