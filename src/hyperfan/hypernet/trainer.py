"""Checkpoints of the Trainer of the transformers library, which is never imported."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperfan.distributed.ranks import gather_objects
from hyperfan.distributed.sharded import is_sharded
from hyperfan.hypernet import saving

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet


class SaveConfig:
    """A callback of the Trainer: its checkpoints can be read by :meth:`HyperNet.from_pretrained`.

    ``Trainer(net, args, callbacks=[SaveConfig()])`` writes a ``config.json`` in each, and leaves what the mainnet has
    frozen out of ``model.safetensors``, from which training is resumed as before.

    Args:
        frozen: whether to save frozen parameters of the mainnet too.
    """

    def __init__(self, frozen: bool = False) -> None:
        self.frozen = frozen

    def on_save(self, args: Any, state: Any, control: Any, *, model: "HyperNet", **_others: Any) -> None:
        """Write a checkpoint again, so that it holds all that a net needs."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if is_sharded(model):  # all processes have a part to give, and the first writes
            there = gather_objects(folder.is_dir())[0]
        else:
            there = state.is_world_process_zero and folder.is_dir()
        if there:
            saving.write(model, folder, frozen=self.frozen, name="model.safetensors")  # from which it resumes

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Nothing is done at any other event."""
        if not name.startswith("on_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return lambda *_args, **_kwargs: None
