"""The epoch of a module with random draws: set like that of a sampler, and part of its state."""

from __future__ import annotations

import mmap
import warnings
from typing import Any

import torch

from . import _arguments
from ._counting import forks, on_device


class Epochs(torch.nn.Module):
    """A module whose draws also depend on the epoch."""

    epoch_number: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        # A tensor, which a compiled or captured step reads anew; of an int it would be compiled anew.
        self.register_buffer("epoch_number", torch.zeros((), dtype=torch.int64))
        self._named = False  # whether set_epoch was called
        self._noticed = _nothing_noticed()
        # The memory of the numbers that forked processes share. It stays what they see when the numbers themselves are
        # moved to memory of torch.multiprocessing, as it does with what it sends to a process that was not forked.
        self._mapped: dict[str, torch.Tensor] = {}
        self._shared_after: int | None = forks()
        self._share()

    def _share(self) -> None:
        """Have the workers of a ``DataLoader`` that live through several epochs, and were forked, see the number that
        :meth:`set_epoch` writes here. A process that was forked, or that got the module by torch.multiprocessing, sees
        it too, until it sets one of its own."""
        if torch.compiler.is_compiling():
            return
        of_another = self._shared_after != forks()
        if of_another:
            self._mapped = {}
        for name in ("epoch_number", "_noticed"):
            number = getattr(self, name)
            if type(number) is not torch.Tensor or number.device.type != "cpu":
                continue
            is_mapped = name in self._mapped and self._mapped[name].data_ptr() == number.data_ptr()
            if of_another or not (is_mapped or number.is_shared()):
                memory = mmap.mmap(-1, number.nbytes)  # share_memory_() would hold a file descriptor for each module
                first, self._mapped[name] = (torch.frombuffer(memory, dtype=number.dtype) for _ in range(2))
                setattr(self, name, first.reshape(number.shape).copy_(number))
        self._shared_after = forks()

    @property
    def epoch(self) -> int:
        """The epoch of calls without one; can be set. Reading it synchronizes with the GPU of the module."""
        return int(self.epoch_number)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the calls that follow, as samplers do, so that each epoch has draws of its own.

        Args:
            epoch: From 0 to 2^32 - 1.

        Raises:
            TypeError, ValueError: It is no such int.
        """
        self._share()  # the number may be another one: assigned by load_state_dict, or moved to a GPU and back
        number = _arguments.epoch(epoch)
        self.epoch_number.fill_(number)
        self._mapped.get("epoch_number", self.epoch_number).fill_(number)
        self._named = True

    def reset_parameters(self) -> None:
        """Go back to epoch 0 and image 0, as a new module. After ``to_empty`` of a module that was made on the meta
        device, its numbers are those that the memory happened to hold; FSDP calls this by itself."""
        self._share()
        for number in self.buffers(recurse=False):
            number.zero_()

    def epoch_on(self, device: torch.device) -> torch.Tensor:
        """The epoch as int64 ``[]`` on ``device``."""
        return on_device(self.epoch_number, device)

    def notice_repeats(self, index: torch.Tensor) -> None:
        """Warn once if an index comes again while no epoch was ever named: it gets the same draws again.

        Only the first index of the first call is looked for, and only on the CPU: on a GPU that would synchronize.
        A call that repeats the one before is meant. The workers of a ``DataLoader`` are new ones in every epoch, with
        another seed, and see what earlier ones wrote.

        Args:
            index: int64 ``[N]``, of a call without an epoch.
        """
        if torch.compiler.is_compiling() or self._named or self.epoch_number.device.type != "cpu":
            return
        if type(index) is not torch.Tensor or index.device.type != "cpu" or not index.numel():
            return
        if torch._C._functorch.peek_interpreter_stack() is not None or int(self.epoch_number):
            return
        worker = torch.utils.data.get_worker_info()
        loader = 0 if worker is None else worker.seed - worker.id  # its seed in this epoch
        state, first, meant = self._noticed.tolist()
        if state == _NOTHING:
            self._noticed.copy_(torch.tensor([_WATCHING, int(index[0]), loader]))
        elif not bool((index == first).any()):
            self._noticed[2] = _NOWHERE
        elif state == _WATCHING and loader != meant:
            self._noticed[0] = _WARNED
            warnings.warn(
                f"{type(self).__name__}: index {first} came again, without an epoch, and is augmented as before; "
                "name the epoch in each call (epoch=), or call set_epoch(epoch) before each epoch",
                stacklevel=5,  # past forward and the two frames of a module's call
            )

    def __copy__(self) -> Epochs:
        """A shallow copy has the same numbers, as of other modules, in the same memory."""
        copy = self.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_mapped": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("_named", False)
        self.__dict__.setdefault("_noticed", _nothing_noticed())
        self._buffers.setdefault("epoch_number", torch.zeros((), dtype=torch.int64))  # pickled before there was one
        self._mapped = {}
        if self.epoch_number.is_shared():  # with the process that has sent it
            self._shared_after = None
        else:
            self._shared_after = forks()
            self._share()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        self._share()
        state_dict.setdefault(prefix + "epoch_number", self.epoch_number)  # saved before there was one
        super()._load_from_state_dict(state_dict, prefix, *rest)


_NOTHING, _WATCHING, _WARNED = range(3)
_NOWHERE = -1  # no loader has this seed


def _nothing_noticed() -> torch.Tensor:
    """What ``notice_repeats`` remembers, int64 ``[3]``: how far it is; the first index; and the seed of the loader in
    whose workers a call that repeats it is meant, until other indices come."""
    return torch.zeros(3, dtype=torch.int64, device="cpu")
