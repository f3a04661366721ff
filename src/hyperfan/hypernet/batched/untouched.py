"""What a run of the mainnet that is given up must leave as it was: its inputs and its buffers."""

from collections.abc import Iterable

from torch import Tensor, nn

from hyperfan.errors import CallError
from hyperfan.hypernet.batched.mode import MARK, MixingError
from hyperfan.hypernet.inputs import Inputs, was_written


class Untouched:
    """Inputs and buffers before a run that may be given up.

    Args:
        modules: the mainnet and all in it.
        inputs: as the user gave them.
        copy: whether to run on copies of the inputs; otherwise a run that changed them cannot be repeated.
    """

    def __init__(self, modules: Iterable[nn.Module], inputs: Inputs, copy: bool) -> None:
        self._given = inputs.tensors if inputs.kind != "shared" else []  # no rule changes what samples share
        self._buffers = [(m._buffers, dict(m._buffers)) for m in modules if m._buffers]
        self._copies: dict[int, Tensor] = {}
        if copy or any(x.is_inference() for x in self._given):  # of those, torch does not count the changes
            self._copies = {id(x): x.clone() for x in self._given}
        self._versions = [] if self._copies else [x._version for x in self._given]
        self.inputs = inputs.replaced([self._copies[id(x)] for x in self._given]) if self._copies else inputs
        """What to run with."""

    def check(self) -> None:
        """Raise if a buffer now differs between samples."""
        for buffers, _ in self._buffers:
            for name, x in buffers.items():
                if hasattr(x, MARK):
                    raise MixingError(f"the buffer '{name}', which would differ between samples")

    def put_back(self) -> None:
        """After a run that ended well, change the inputs as it changed their copies."""
        for x in self._given if self._copies else ():
            changed = self._copies[id(x)]
            if was_written(changed, x):
                x.copy_(changed)

    def restore(self, error: BaseException) -> None:
        """After a run that failed, make another possible; raise if it is not."""
        for buffers, before in self._buffers:
            buffers.clear()
            buffers.update(before)
        if not self._copies and self._versions != [x._version for x in self._given]:
            if isinstance(error, Exception):
                raise error
            raise CallError(
                f"the mainnet changed its inputs in place before it came to {error}, which cannot run for all samples "
                "at once: call again with the inputs as they were, which then runs by vmap"
            ) from error
