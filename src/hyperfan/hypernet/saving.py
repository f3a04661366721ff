"""A saved hypernet: ``config.json`` and the safetensors file it names. No pickle, and never half-written.

The weights' file is named after its content and is complete before ``config.json`` points to it, so that an
interrupted save leaves the previous one intact. In the checkpoint of a Trainer it has to replace the Trainer's own;
one whose ``config.json`` is then missing, or has another checksum, cannot be loaded.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

import hyperfan
from hyperfan.codes.embedding import Embedding
from hyperfan.codes.trunk import trunk_widths
from hyperfan.distributed.ranks import gather_objects
from hyperfan.distributed.sharded import gathered, is_sharded
from hyperfan.errors import CheckpointError, HyperfanError
from hyperfan.files import (
    checksum,
    explain_write_errors,
    parse_json,
    read_tensors,
    replace_file,
    temporary_file,
    write_tensors,
    write_text,
)
from hyperfan.generators import GeneratorConfig
from hyperfan.hypernet.checks import check_unchanged
from hyperfan.hypernet.unsaved import check_marks, frozen_values, given_bases, marks
from hyperfan.init.plan import Plan, Row
from hyperfan.init.registry import Method, available, method
from hyperfan.mainnet.read import NonlinearityArgument
from hyperfan.mainnet.skeleton import Skeleton

if TYPE_CHECKING:
    from hyperfan.hypernet.hypernet import HyperNet

CONFIG = "config.json"
TRAINER_STATE = "trainer_state.json"
"""A file in each checkpoint that the Trainer of the transformers library writes."""
MAINNET = "mainnet."
"""Prefix of the plain part of a mainnet in a state_dict."""
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "text": (str, "weights sha256 init fidelity distribution base_op"),
    "table": (dict, "embedding heads settings base base_values frozen_values mainnet modules plan"),
    "list": (list, "generate trunk buffers frozen_tasks"),
    "number": ((int, float), "share code_square"),
    "count": (int, "added_tasks"),
    "boolean": (bool, "init_trunk init_biases"),
}
"""The keys of a configuration by the kinds of their values, whose names are those in an error."""
_NULLABLE = "base trunk code_square init_biases".split()
_Net = TypeVar("_Net", bound="HyperNet")


def save(net: "HyperNet", path: str | os.PathLike[str], overwrite: bool, frozen: bool) -> None:
    """Write the net to a folder, with the frozen part of its mainnet or without."""
    folder = Path(path)

    def check() -> None:
        if (folder / CONFIG).exists() and not overwrite:
            raise CheckpointError(f"{folder} already holds a saved hypernet: pass overwrite=True to replace it")
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(f"{folder} is a file; a hypernet is saved to a folder")

    _in_first_process(check, is_sharded(net))
    write(net, folder, frozen=frozen)


def write(net: "HyperNet", folder: Path, *, frozen: bool, name: str | None = None) -> None:
    """Write the net over whatever the folder holds; the file of weights has this name, or one after its content."""
    check_unchanged(net, "from_pretrained")
    net.heads.config.to_json()  # of a net that uses another's heads an error, before anything is written
    if net.init.name not in (m.name for m in available()):
        raise CheckpointError(
            f"the init method '{net.init.name}' is not known by name: hyperfan.init.register it first"
        )
    left_out = {} if frozen else net.skeleton.lent_parameters()
    state = {k: v for k, v in net.state_dict().items() if k.removeprefix(MAINNET) not in left_out}
    others = {n: b for n, b in net.mainnet.named_buffers() if MAINNET + n not in state}  # which no state_dict holds
    state |= {MAINNET + n: b for n, b in others.items()}
    state, frozen_there = gathered(state), gathered(left_out)

    def write_files() -> None:
        remedy = "Make room, or choose another place; what was saved there before is as it was"
        with explain_write_errors(str(folder), remedy, CheckpointError):
            _write_files(net, folder, name, state, {"frozen_values": marks(frozen_there), "buffers": list(others)})

    _in_first_process(write_files, is_sharded(net))


def _in_first_process(call: Callable[[], None], sharded: bool) -> None:
    """Call a function, for a net that is sharded in the first process only; if it fails, that is an error in all."""
    if not sharded:
        call()
        return
    error: Exception | None = None
    if torch.distributed.get_rank() == 0:
        try:
            call()
        except Exception as caught:
            error = caught
    message = gather_objects(error and str(error))[0]
    if error is not None:
        raise error
    if message is not None:
        raise CheckpointError(message)


def _write_files(
    net: "HyperNet", folder: Path, name: str | None, state: Mapping[str, torch.Tensor], more: dict[str, Any]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:  # the file that an earlier save wrote here is the only one that a new save may remove
        replaced = os.path.basename(_read_config(folder)["weights"])
    except CheckpointError:
        replaced = None
    with temporary_file(folder) as partial:
        write_tensors(partial, state)
        digest = checksum(partial)
        weights = name or f"model-{digest[:12]}.safetensors"
        replace_file(partial, folder / weights)
    config = json.dumps(_config(net, weights, digest) | more, indent=2, default=_python_number)
    write_text(folder / CONFIG, config + "\n")
    if replaced is not None and replaced != weights:
        (folder / replaced).unlink(missing_ok=True)


def load(
    cls: type[_Net],
    path: str | os.PathLike[str],
    mainnet: nn.Module,
    trunk: nn.Module | None,
    example: Any,
    nonlinearity: NonlinearityArgument,
) -> _Net:
    """Build the net and fill it from a folder."""
    folder = Path(path)
    config = _read_config(folder)
    _check_mainnet(config, mainnet, folder)
    if config["trunk"] is not None and trunk is not None and trunk_widths(trunk) != config["trunk"]:
        raise CheckpointError(f"{folder} was saved with the trunk {config['trunk']}: leave trunk= out")
    if config["trunk"] is None and trunk is None:
        raise CheckpointError(f"{folder} was saved with a trunk module of its own: pass one like it with trunk=")
    embedding, heads, init, plan = _read_parts(folder, config)
    state = _read_weights(folder, config)
    trunk = config["trunk"] if trunk is None else trunk
    net = _build(cls, config, mainnet, embedding, heads, init, trunk=trunk, example=example, nonlinearity=nonlinearity)
    saved = {name: state.pop(MAINNET + name) for name in config["buffers"]}
    buffers = {name: saved.get(name, buffer) if buffer.is_meta else buffer for name, buffer in mainnet.named_buffers()}
    frozen = frozen_values(config["frozen_values"], dict(mainnet.named_parameters()))
    state |= {MAINNET + name: value for name, value in frozen.items()}
    _check_fit(folder, state, net.state_dict())
    if (reason := net.heads.why_saved_unfit(config.get("in_first", ()))) is not None:  # 0.2.0 had no such list
        raise CheckpointError(f"{folder} was {reason}")
    net.embeddings.normalise_to(config["code_square"])
    net.restore_(init, plan, state, buffers, net.kept_values.with_values(config["init_trunk"]))
    net.skeleton.lend(frozen)
    check_marks({**given_bases(net), **frozen}, {**config["base_values"], **config["frozen_values"]})
    return net


def _read_parts(folder: Path, config: dict[str, Any]) -> tuple[Embedding, GeneratorConfig, Method, Plan]:
    """The parts of a net that its configuration describes."""
    try:
        embedding, heads = Embedding.from_json(config["embedding"]), GeneratorConfig.from_json(config["heads"])
        init = method(config["init"], **config["settings"])
        plan = Plan(**{**config["plan"], "rows": tuple(Row(**row) for row in config["plan"]["rows"])})
    except HyperfanError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder / CONFIG} has an embedding, heads, settings or a plan that are not known here: {error}"
        ) from error
    return embedding, heads, init, plan


def _build(
    cls: type[_Net],
    config: dict[str, Any],
    mainnet: nn.Module,
    embedding: Embedding,
    heads: GeneratorConfig,
    init: Method,
    **arguments: Any,
) -> _Net:
    """The net of a configuration, without its values."""
    names, added, share = set(config["generate"]), config["added_tasks"], config["share"]
    if added:
        embedding = dataclasses.replace(embedding, tasks=(embedding.tasks or 0) - added)
    net = cls(
        Skeleton(mainnet).module,  # the same architecture without values
        embedding,
        generate=lambda t: t.name in names,
        init_biases=config["init_biases"],
        heads=heads,
        init=dataclasses.replace(init, needs_nonlinearity=False) if share < 1 else method("m2"),  # the plan is saved
        share=None if heads.updates_base else share,
        base_op=config["base_op"],
        base=_given_base(config["base"], mainnet),
        fidelity=config["fidelity"],
        distribution=config["distribution"],
        **arguments,
    )
    for _ in range(added):
        net.embeddings.add_task()
    for task in config["frozen_tasks"]:
        net.embeddings.freeze_task(task)
    return net


def _given_base(base: dict[str, bool | None] | None, mainnet: nn.Module) -> dict[str, torch.Tensor] | None:
    """The bases that were given, by name and whether they were trained, from a mainnet; saved ones without values."""
    if base is None:
        return None
    parameters = {name: p.detach() for name, p in mainnet.named_parameters()}
    return {
        name: parameters[name].to("meta") if trained is None else parameters[name].requires_grad_(trained)
        for name, trained in base.items()
    }


def _python_number(value: Any) -> Any:
    """A setting that came as a number of NumPy, as Python's."""
    if not hasattr(value, "item"):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return value.item()


def _config(net: "HyperNet", weights: str, digest: str) -> dict[str, Any]:
    return {
        "hyperfan": hyperfan.__version__,
        "weights": weights,
        "sha256": digest,
        "embedding": dataclasses.asdict(net.embeddings.config),
        "added_tasks": net.embeddings.added,
        "frozen_tasks": net.embeddings.frozen,
        "generate": [t.name for t in net.generated],
        "in_first": [t.name for t in net.generated if t.in_first],
        "trunk": trunk_widths(net.trunk),
        "init_trunk": net.kept_values.init_trunk,
        "init_biases": net.kept_values.init_biases,
        "heads": net.heads.config.to_json(),
        "share": net.share,
        "code_square": net.embeddings.code_square,
        "base": None if net.heads.base is None else net.heads.base.to_json(),
        "base_values": marks(given_bases(net)),
        "base_op": "multiply" if net.heads.base is not None and net.heads.base.multiply else "add",
        "init": net.init.name,
        "settings": dict(net.init.settings),
        "fidelity": net.fidelity,
        "distribution": net.distribution,
        **_architecture(net.skeleton),
        "plan": net.plan.to_dict(),
    }


def _architecture(skeleton: Skeleton) -> dict[str, dict[str, Any]]:
    """The shapes of a mainnet's tensors and the kinds of its modules, by name."""
    return {
        "mainnet": {name: list(t.shape) for name, t in skeleton.tensors.items()},
        "modules": skeleton.kinds,
    }


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = parse_json((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no saved hypernet: it has no {CONFIG}{_how_to_save(folder)}") from None
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG} is damaged: {error}") from error
    wanted = {key: (kind, name) for name, (kind, keys) in _KINDS.items() for key in keys.split()}
    missing = wanted.keys() - set(config if isinstance(config, dict) else ())
    if missing:
        raise CheckpointError(f"{folder / CONFIG} is not of a saved hypernet: it lacks {', '.join(sorted(missing))}")
    for key, (kind, name) in wanted.items():
        if not isinstance(config[key], kind) and not (config[key] is None and key in _NULLABLE):
            raise CheckpointError(f"{folder / CONFIG} is damaged: '{key}' is no {name}")
    return config


def _how_to_save(folder: Path) -> str:
    """What a checkpoint of the Trainer of the transformers library lacks."""
    if not (folder / TRAINER_STATE).exists():
        return ""
    return ". It is a Trainer's checkpoint: train with Trainer(net, …, callbacks=[hyperfan.hypernet.SaveConfig()])"


def _check_mainnet(config: dict[str, Any], mainnet: nn.Module, folder: Path) -> None:
    given = _architecture(Skeleton(mainnet))
    for kind, text in (("mainnet", "of shape {}"), ("modules", "{}")):
        for name in [*config[kind], *given[kind]]:
            then, now = (
                text.format(tuple(value) if isinstance(value, list) else value) if value is not None else "absent"
                for value in (config[kind].get(name), given[kind].get(name))
            )
            if then != now:
                raise CheckpointError(
                    f"{folder} was saved for another mainnet: '{name}' is {then} there and {now} in the mainnet given"
                )


def _read_weights(folder: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    file = folder / os.path.basename(config["weights"])
    if not file.exists():
        raise CheckpointError(f"{file} is missing, though {CONFIG} names it")
    if checksum(file) != config["sha256"]:
        raise CheckpointError(f"{file} is damaged or truncated: its checksum is not the one in {CONFIG}")
    state = read_tensors(file)
    unknown = [name for name in config["buffers"] if f"{MAINNET}{name}" not in state]
    unknown += [name for name in (*config["frozen_values"], *(config["base"] or ())) if name not in config["mainnet"]]
    if unknown:
        raise CheckpointError(f"{folder / CONFIG} is damaged: it names '{unknown[0]}', which is not in the net")
    return state


def _check_fit(folder: Path, state: dict[str, torch.Tensor], wanted: dict[str, Any]) -> None:
    for name in [*wanted, *state]:
        if name not in state or name not in wanted or state[name].shape != wanted[name].shape:
            raise CheckpointError(
                f"the weights in {folder} do not fit {CONFIG}: '{name}' is missing or has another shape"
            )
