"""The second moment ‖h‖² of each tensor's code: in expectation, and as it really is.

A generator divides by it. The paper's table is the case where it is d_k·Var(e).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from hyperfan.codes.codes import Codes
from hyperfan.codes.trunk import ReluMLP
from hyperfan.distributed.sharded import full
from hyperfan.errors import InitError, one_line
from hyperfan.mainnet.gains import gains
from hyperfan.mainnet.skeleton import duplicate

GIVEN_CODES = 4096
"""Codes to average over where embeddings are given at the call."""
MAX_GIVEN_CODES = 2**18
"""Codes to average over where each condition makes one for every identity, of which there may be thousands."""
MAX_VALUES_AT_ONCE = 2**17
"""Values in a layer of the trunk that are computed at once, so that memory does not grow with its width."""
MIN_CODES_AT_ONCE, MAX_CODES_AT_ONCE = 2**8, 2**14
"""Codes that are computed at once, at least and at most, so that memory does not grow with their number."""
MAX_VALUES_IN_FLOAT64 = 2**15
"""Values of codes that are held in float64 at once."""
NOISY_CODES = 16384
"""Codes to average over where stored embeddings have noise: over 16 draws for each, at the least."""
MIN_DRAWS = 16
"""Draws of each code to average over, at the least."""
MIN_SCATTER_DRAWS = 64
"""Draws of each code where the variance of ‖h‖² counts, at the least."""
DROPOUT_DRAWS = 64
"""Passes of each code through a trunk with dropout."""
MAX_REDRAWS = 100
"""Attempts to replace embeddings of which the trunk makes zero."""
ZERO_CODE_MESSAGE = (
    "the trunk makes a code of exactly zero, of which nothing can be made: is it too narrow, or its last layer 0?"
)


def expected_moment(codes: Codes, width: int, *, exact: bool, trunk_preserves: bool) -> float | None:
    """‖h‖² of any code before anything is drawn; ``None`` where only a draw can tell.

    Args:
        codes: where codes come from.
        width: their size.
        exact: whether noise, trunk and identity are taken into account; the paper's table has d_k·Var(e).
        trunk_preserves: whether the trunk is initialised so that it passes second moments on.
    """
    config = codes.embeddings.config
    if config.normalise:
        return float(width) if codes.embeddings.code_square is None else codes.embeddings.code_square
    if not exact:
        return width * codes.embeddings.variance
    if codes.embeddings.examples is not None:
        return None
    if codes.trunk is None:
        return width * codes.embeddings.mean_square
    if isinstance(codes.trunk, ReluMLP) and trunk_preserves:
        # Fan-in init passes E[e²] on to the last layer's output, of which ReLU leaves one half.
        return width * codes.embeddings.mean_square / gains("relu").forward
    return None


def measured_moments(codes: Codes, spans: Sequence[slice]) -> list[float]:
    """‖h‖² of each tensor's codes as they are, in expectation over what is not known before the call."""
    embeddings, config, stored = codes.embeddings, codes.embeddings.config, _known(codes)
    if codes.trunk is None and codes.inputs is None and not config.normalise:
        drawn = config.size * (config.noise**2 / 3 if stored is not None else config.mean_square)
        # Given conditions are not known here; what they add is in expectation.
        zeros = _like(codes, torch.zeros(embeddings.n, config.size, device="cpu"))
        e = zeros if stored is None else stored.detach()
        return _nonzero(_per_tensor(_squares(codes, e) + drawn, spans))
    return _nonzero(_per_tensor(_reduced(codes, _samples(codes), code_squares), spans))


def measured_means(codes: Codes, spans: Sequence[slice], function: Callable[[Tensor], Tensor]) -> list[float]:
    """A function of each tensor's codes, (…, R, width) in float64 → (…), in the same expectation."""

    def of_tensors(h: Tensor) -> Tensor:
        h = h.double()
        return torch.stack([function(h[..., span, :]) for span in _of_codes(spans, h.shape[-2])], -1)

    return _nonzero(_reduced(codes, _samples(codes), of_tensors).reshape(-1, len(spans)).mean(0).tolist())


def _samples(codes: Codes) -> Iterable[Tensor]:
    """Conditions to average over: those that are known, with draws of their noise, or draws of those to come.

    In blocks (…, n, size), of which those that are drawn take no memory before their turn.
    """
    config, stored = codes.embeddings.config, _known(codes)
    # A generator of its own, so that averaging does not shift anyone else's random numbers.
    generator = torch.Generator().manual_seed(0)
    if stored is None:
        blocks = _draws(codes, MIN_DRAWS, generator)
        if not config.noise:
            return blocks
        e = torch.cat(list(blocks))
    else:
        draws = max(NOISY_CODES // (stored.numel() // config.size), MIN_DRAWS) if config.noise else 1
        e = stored.detach().expand(draws, *stored.shape)
    if config.noise:
        noise_draws = torch.empty(e.shape, device="cpu").uniform_(-config.noise, config.noise, generator=generator)
        e = e + noise_draws.to(e)
    return [e]


def stored_squares(codes: Codes) -> Tensor | None:
    """‖h‖² of each code of the stored embeddings without noise, (…, n); ``None`` where they are given at the call."""
    stored = codes.embeddings.conditions
    return None if stored is None else _squares(codes, stored)


def code_squares(codes: Tensor) -> Tensor:
    """‖h‖² of each code, (…, width) → (…), in float64."""
    parts = codes.reshape(-1, codes.shape[-1]).tensor_split(math.ceil(codes.numel() / MAX_VALUES_IN_FLOAT64) or 1)
    norms = torch.cat([torch.linalg.vector_norm(part, dim=-1, dtype=torch.float64) for part in parts])
    return norms.square().view(codes.shape[:-1])


def moment_scatter(codes: Codes, spans: Sequence[slice]) -> float:
    """Relative variance of ‖h‖² from one draw of the embeddings to another, in the tensor where it is largest.

    Of embeddings that are given at the call, the examples count if there are several.
    """
    e = _known(codes) if codes.embeddings.config.given else None
    if e is None or e.ndim < 3 or len(e) < 2:
        blocks = _draws(codes, MIN_SCATTER_DRAWS, torch.Generator().manual_seed(0))
    else:
        blocks = iter([e])
    squares = _reduced(codes, blocks, code_squares)
    each = torch.stack([squares[:, span].mean(1) for span in _of_codes(spans, squares.shape[-1])])
    return float((each.var(1) / each.mean(1).square()).max())


def redraw_zero_codes_(codes: Codes, generator: torch.Generator | None) -> None:
    """Draw the embeddings anew of which the trunk makes exactly zero, as a narrow ReLU trunk may.

    A tensor generated from such a code starts at zero, and its head never learns.
    """
    embeddings = codes.embeddings
    if codes.trunk is None or embeddings.weight is None:
        return
    if not embeddings.identities:
        for table in embeddings.tables:
            _redraw_until_nonzero_(partial(_redraw_, codes, table), partial(_are_zero, codes, table), generator)
    else:  # which of the two is to blame is not known, so identities are drawn
        of_all = embeddings.conditions
        assert of_all is not None
        _redraw_until_nonzero_(
            embeddings.redraw_identities_,
            lambda: _are_zero(codes, of_all).reshape(-1, embeddings.codes).any(0),
            generator,
        )


def redraw_trunk_of_zero_codes_(codes: Codes, draw_trunk: Callable[[], None]) -> None:
    """Draw the trunk anew while it makes exactly zero of an embedding that the init method has set."""
    of_all = codes.embeddings.conditions
    if codes.trunk is not None and of_all is not None:
        _redraw_until_nonzero_(lambda zero, generator: draw_trunk(), lambda: _are_zero(codes, of_all), None)


def redraw_zero_task_(codes: Codes, table: Tensor, generator: torch.Generator | None) -> None:
    """Draw one task's embeddings anew where the trunk makes exactly zero of them, and leave identities as they are."""

    def zero() -> Tensor:
        found = _are_zero(codes, table)
        return found if len(found) == len(table) else found.any(0, keepdim=True)

    if codes.trunk is not None:
        _redraw_until_nonzero_(partial(_redraw_, codes, table), zero, generator)


def _redraw_(codes: Codes, table: Tensor, zero: Tensor, generator: torch.Generator | None) -> None:
    """Draw some conditions of a table anew."""
    redrawn = codes.embeddings.draw_(torch.empty_like(table), generator)
    with torch.no_grad():
        table.copy_(torch.where(zero.unsqueeze(-1), redrawn, table))


def _are_zero(codes: Codes, conditions: Tensor) -> Tensor:
    return _squares(codes, conditions) == 0


def _redraw_until_nonzero_(
    redraw_: Callable[[Tensor, torch.Generator | None], None],
    are_zero: Callable[[], Tensor],
    generator: torch.Generator | None,
) -> None:
    """Draw what makes zero anew, until nothing does."""
    for _ in range(MAX_REDRAWS):
        zero = are_zero()
        if not zero.any():
            return
        redraw_(zero, generator)
    raise InitError(ZERO_CODE_MESSAGE)


def _known(codes: Codes) -> Tensor | None:
    """The embeddings that codes come from, stored or like those to be given; ``None`` where there are only draws."""
    stored, examples = codes.embeddings.conditions, codes.embeddings.examples
    return stored if stored is not None or examples is None else _like(codes, examples)


def _nonzero(moments: list[float]) -> list[float]:
    if not all(moments):
        raise InitError(ZERO_CODE_MESSAGE)
    return moments


def _draws(codes: Codes, least: int, generator: torch.Generator) -> Iterator[Tensor]:
    """At least so many conditions as they may come, in blocks (draws, n, size), as the net's parameters are."""
    embeddings = codes.embeddings
    count = GIVEN_CODES // embeddings.n
    if embeddings.identities:
        count = min(count, MAX_GIVEN_CODES // embeddings.codes)
    count = max(count, least)
    blocks = math.ceil(count / _conditions_at_once(codes, embeddings.n))
    for i in range(blocks):  # of nearly one size, as a batch norm in the trunk takes no block of one
        draws = count * (i + 1) // blocks - count * i // blocks
        e = embeddings.draw_(torch.empty(draws, embeddings.n, embeddings.config.size, device="cpu"), generator)
        yield _like(codes, e)


def _conditions_at_once(codes: Codes, of_each: int) -> int:
    """Conditions, each of so many codes, that are computed at once."""
    modules = [m for m in (codes.trunk, codes.inputs) if m is not None]
    widest = max([codes.embeddings.size, *(size for m in modules for p in m.parameters() for size in p.shape[-2:])])
    of_each = codes.embeddings.codes if codes.embeddings.identities else of_each
    at_once = min(max(MAX_VALUES_AT_ONCE // widest, MIN_CODES_AT_ONCE), MAX_CODES_AT_ONCE)
    return max(at_once // of_each, 1)


def _like(codes: Codes, e: Tensor) -> Tensor:
    """Convert values to the dtype and device of the net, where it has parameters before the heads."""
    modules = [m for m in (codes.embeddings, codes.trunk, codes.inputs) if m is not None]
    return e.to(next((t for m in modules for t in (*m.parameters(), *m.buffers()) if t.is_floating_point()), e))


def _squares(codes: Codes, e: Tensor) -> Tensor:
    """‖h‖² of the code of each condition and identity as in training, averaged over the draws of a dropout.

    Shape:
        conditions (…, n or 1, size) → (…, n)
    """
    return _reduced(codes, [e], code_squares).view(*e.shape[:-2], -1)


def _reduced(codes: Codes, conditions: Iterable[Tensor], reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of each condition's codes, averaged over a dropout's draws: (…, n, width) → (conditions, values)."""
    embeddings = codes.embeddings
    source = Codes(embeddings, _copy(codes.trunk), _copy(codes.inputs))
    modules = [m for part in (source.trunk, source.inputs) if part is not None for m in part.train().modules()]
    repeats = DROPOUT_DRAWS if any(isinstance(m, nn.modules.dropout._DropoutNd) for m in modules) else 1
    devices = {p.device for m in modules for p in m.parameters() if p.is_cuda}
    found = []
    with torch.random.fork_rng(devices), torch.no_grad():
        for e in map(full, conditions):
            each = e.reshape(-1, *e.shape[-2:])
            if not modules:
                found.append(reduce(codes.encode(embeddings.join_identity(each).double())))
                continue
            for block in each.tensor_split(math.ceil(len(each) / _conditions_at_once(codes, each.shape[1]))):
                joined = embeddings.join_identity(block)
                try:
                    total = sum(reduce(source.encode(joined)) for _ in range(repeats))
                except (RuntimeError, ValueError) as error:
                    rows = joined.numel() // joined.shape[-1]
                    raise InitError(
                        f"the trunk does not run on {rows} codes in training mode: {one_line(error)}"
                    ) from error
                found.append(cast(Tensor, total) / repeats)
    return torch.cat(found)


def _copy(module: nn.Module | None) -> nn.Module | None:
    """A module with buffers and modes of its own, and the same parameters, or full ones if those are sharded."""
    return None if module is None else duplicate(module, {id(p): full(p) for p in module.parameters()})


def _per_tensor(squares: Tensor, spans: Sequence[slice]) -> list[float]:
    """Mean over draws and tasks, and over a tensor's codes, one value for each tensor."""
    each = squares.reshape(-1, squares.shape[-1]).mean(0)
    return [float(each[span].mean()) for span in _of_codes(spans, len(each))]


def _of_codes(spans: Sequence[slice], count: int) -> Sequence[slice]:
    """The codes of each tensor; all have the same one where the net has only one."""
    return spans if count > 1 else [slice(0, 1)] * len(spans)
