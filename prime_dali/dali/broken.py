"""Which images cannot be read or decoded, and why."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import Pipeline

from ..data.pictures import PhotoError, reader, refused
from ..data.records import Records
from .operator import fn, types


def broken_images(records: Records, numbers: Iterable[int], device_id: int | None) -> dict[int, str]:
    """Which of these images cannot be read or decoded: by index, a message that names the file or shard."""
    found: dict[int, str] = {}
    sound: dict[int, NDArray[np.uint8]] = {}
    for number in numbers:
        try:
            data = np.frombuffer(records.encoded(number), np.uint8)
        except PhotoError as error:
            found[number] = str(error)
            continue
        why = refused(reader(data))
        if why:
            found[number] = f"{records.name(number)}: not a readable image ({why})"
        else:
            sound[number] = data

    def halve(places: list[int]) -> None:
        why = _why_not_decoded([sound[place] for place in places], device_id) if places else None
        if why is None:
            return
        if len(places) == 1:
            found[places[0]] = f"{records.name(places[0])}: {why}"
            return
        halve(places[: len(places) // 2])
        halve(places[len(places) // 2 :])

    halve(list(sound))
    return dict(sorted(found.items()))


def _why_not_decoded(encoded: list[NDArray[np.uint8]], device_id: int | None) -> str | None:
    """DALI's reason why one of these images cannot be decoded; None if all can."""
    pipeline = Pipeline(batch_size=len(encoded), num_threads=2, device_id=device_id, prefetch_queue_depth=1)
    with pipeline:
        given = fn.external_source(lambda: encoded, batch=True, dtype=types.UINT8, ndim=1)
        images = fn.decoders.image(given, device="cpu" if device_id is None else "mixed")
        pipeline.set_outputs(fn.peek_image_shape(given), images)
    try:
        pipeline.run()
    except (RuntimeError, UnicodeDecodeError) as error:
        lines = [line for line in str(error).split("encountered:")[-1].splitlines() if line.strip()]
        return f"cannot be decoded ({lines[0].strip() if lines else 'DALI gives no reason'})"
    return None
