"""``select``: the parameters to generate, by role, by patterns on their names, or by a predicate."""

import fnmatch
import warnings
from collections.abc import Callable, Collection, Sequence

from hyperfan.errors import HyperfanWarning, MainnetError, closest, nearest
from hyperfan.mainnet.adapters import is_magnitude
from hyperfan.mainnet.spec import Role, Spec, TensorSpec

Generate = str | Sequence[str] | Callable[[TensorSpec], bool]
MAX_PARAMETERS_SHOWN = 8
"""Parameters that an error lists."""
ROLES: dict[str, tuple[Role, ...]] = {"weights": ("weight",), "weights+biases": ("weight", "bias")}


def select(spec: Spec, generate: Generate, frozen: Collection[str] = ()) -> tuple[TensorSpec, ...]:
    """Select the tensors to generate, in the mainnet's order.

    ``"weights"`` and ``"weights+biases"`` go by role, so norm parameters are in neither; anything else is a glob
    pattern on names (or several), or a function of the :class:`TensorSpec`.

    Args:
        spec: the mainnet.
        generate: what to select.
        frozen: names of parameters that are not trained, and whose values would be lost. Roles leave them out, if there
            are others.
    """
    if callable(generate):
        chosen = [t for t in spec if generate(t)]
        seen = "a predicate that holds for none"
    elif isinstance(generate, str) and generate in ROLES:
        frozen = frozen if any(t.name not in frozen for t in spec) else ()
        chosen = [t for t in spec if t.role in ROLES[generate] and not t.hand_set and t.name not in frozen]
        seen = f"'{generate}', and no parameter {'that is trained ' if frozen else ''}has that role"
        _warn_about_missing_rules(spec)
    elif isinstance(generate, str | Sequence):
        patterns = [generate] if isinstance(generate, str) else list(generate)
        for pattern in patterns:
            if not any(_matches(t, pattern) for t in spec):
                raise MainnetError(f"generate={pattern!r} matches no parameter of the mainnet: {_meant(pattern, spec)}")
        chosen = [t for t in spec if any(_matches(t, pattern) for pattern in patterns)]
        if any(t.has_rule for t in chosen):  # what an adapter has beside its weights is not meant by "*lora_*"
            chosen = [t for t in chosen if not is_magnitude(t)]
        seen = "an empty list of patterns"
    else:
        raise MainnetError(f"generate={generate!r}: give 'weights', 'weights+biases', patterns, or a function")
    if not chosen:
        names = ", ".join(f"{t.name} ({t.role})" for t in spec)
        raise MainnetError(f"nothing to generate: generate= is {seen}. The parameters are {names}")
    for t in chosen:
        if not t.dtype.is_floating_point:
            raise MainnetError(
                f"'{t.name}' is {t.dtype}; only real floating-point parameters can be generated. "
                "Leave it out with generate=lambda t: t.dtype.is_floating_point and t.role == 'weight'"
            )
    if frozen and not callable(generate) and all(t.name in frozen and t.has_rule for t in chosen):
        raise MainnetError(
            f"generate={generate!r} matches only frozen parameters, such as '{chosen[0].name}', whose values would be "
            "lost: keep them with heads=hyperfan.LoRA(…) or base='mainnet', or unfreeze them with requires_grad_(True)"
        )
    return tuple(chosen)


def _warn_about_missing_rules(spec: Spec) -> None:
    """Warn about matrices without a rule, which would silently keep their values."""
    without_rule = [t for t in spec if t.may_be_weight and t.role == "other" and not t.hand_set]
    if without_rule:
        advice = (
            "Pass example=, inputs on which they are used, which shows what is multiplied by a weight, or register a "
        )
        advice += f"rule with @hyperfan.rule({without_rule[0].kind})"
        owner, parametrized, rest = without_rule[0].name.partition(".parametrizations.")
        if parametrized:
            layer, tensor = owner.rpartition(".")[2], rest.partition(".")[0]
            advice = "They make a weight: torch.nn.utils.parametrize.remove_parametrizations"
            advice += f"({layer}, '{tensor}') writes it out, so that it can be generated"
        warnings.warn(
            f"{', '.join(t.name for t in without_rule)}: no rule says what these parameters do, so they are not "
            f"generated and keep their values. {advice}",
            HyperfanWarning,
            stacklevel=4,
        )


def _meant(pattern: str, spec: Spec) -> str:
    """What a pattern that matches nothing was probably meant to be, as the end of a sentence."""
    if closest(pattern, ROLES) is not None and "." not in pattern:
        return nearest(pattern, ROLES)
    for wider in (f"*.{pattern}", f"*.{pattern}.weight", f"{pattern}.weight", f"*{pattern}*"):
        found = [t.name for t in spec if _matches(t, wider)]
        if found:
            return f"a pattern is for whole names, as {wider!r}, which matches {len(found)}, such as '{found[0]}'"
    names = [t.name for t in spec]
    known = [*ROLES, *names]
    if closest(pattern, known) is not None or len(names) <= MAX_PARAMETERS_SHOWN:
        return nearest(pattern, known)
    return f"there are {', '.join(names[:MAX_PARAMETERS_SHOWN])}, and {len(names) - MAX_PARAMETERS_SHOWN} more"


def _matches(tensor: TensorSpec, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (tensor.name, *tensor.aliases))
