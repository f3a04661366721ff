"""Objects that a mainnet is given and changes, as a cache: with many codes they end as with each code alone."""

import copy
import itertools
from collections import deque, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import hyperfan as hf
from checks import assert_close
from products import covered

Pair = namedtuple("Pair", "keys length")


def hypernet(mainnet):
    return hf.HyperNet(mainnet, hf.Embedding(4, given=True, per="net"), generate="layer.weight", nonlinearity="linear")


class Cache:
    """As other libraries have them."""

    def __init__(self, keys):
        self.keys, self.steps, self.fixed = keys, 0, keys.clone()


@dataclass(slots=True)
class Slotted:
    keys: torch.Tensor
    steps: int = 0


class InTuple:
    def __init__(self, keys):
        self.pair = Pair(keys, 0)


def grow(cache, new):
    """Append to what a cache holds, in place; the keys."""
    if isinstance(cache, (list, deque)):
        cache.append(new)
        return torch.cat(list(cache), 1)
    if isinstance(cache, dict):
        cache["keys"] = torch.cat([cache["keys"], new], 1)
        return cache["keys"]
    if isinstance(cache, InTuple):
        cache.pair = Pair(torch.cat([cache.pair.keys, new], 1), cache.pair.length + 1)
        return cache.pair.keys
    cache.keys, cache.steps = torch.cat([cache.keys, new], 1), cache.steps + 1
    return cache.keys


MAKERS = {
    "list": lambda x: [x],
    "deque": lambda x: deque([x]),
    "dict": lambda x: {"keys": x},
    "object": Cache,
    "slots": Slotted,
    "tuple in an object": InTuple,
}


def held(cache):
    """All tensors and numbers in a cache."""
    if isinstance(cache, (list, deque)):
        return list(cache)
    if isinstance(cache, dict):
        return list(cache.values())
    if isinstance(cache, InTuple):
        return list(cache.pair)
    return [getattr(cache, name) for name in ("keys", "steps", "fixed") if hasattr(cache, name)]


class Remembering(nn.Module):
    """Weighs what it remembers; ``how`` says what many codes make of it."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.how = nn.Linear(3, 3), how

    def forward(self, x, cache):
        keys = grow(cache, self.layer(x))
        if self.how == "vmap":
            keys = torch.special.erfcx(keys)
        if self.how == "parts" and bool(x.sum() > 0):  # in which samples differ
            keys = 2 * keys
        return keys.sum(1)


@pytest.mark.parametrize(
    ("kind", "how", "called"),
    covered(
        list(itertools.product(MAKERS, ["batched", "vmap", "parts"], ["sample", "grouped", "counts", "one"])), tuple
    ),
)
def test_a_cache_ends_as_in_a_loop(kind, how, called):
    torch.manual_seed(0)
    net = hypernet(Remembering(how)).double()
    codes, make = torch.randn(1 if called == "one" else 2 if called == "grouped" else 3, 4).double(), MAKERS[kind]
    x, keys = (torch.randn(4, t, 3).double() for t in (2, 5))
    rows = {"sample": [1, 1, 1], "one": [1], "grouped": [2, 2], "counts": [1, 2, 1]}[called]
    total = sum(rows)
    x, keys = x[:total], keys[:total]
    spread = (lambda t: t.view(2, 2, *t.shape[1:])) if called == "grouped" else lambda t: t
    how_called = {"grouped": {"grouped": True}, "counts": {"counts": rows}}.get(called, {})
    cache = make(spread(keys))
    outs = [net(spread(x), cache, embedding=codes, **how_called) for _ in range(2)]
    given = [make(part) for part in keys.split(rows)]
    expected = [
        [net(part, its, embedding=code) for part, its, code in zip(x.split(rows), given, codes, strict=True)]
        for _ in range(2)
    ]
    for out, parts in zip(outs, expected, strict=True):
        assert_close(out.reshape(total, 3), torch.cat(parts))
    for ours, *parts in zip(held(cache), *map(held, given), strict=True):
        if isinstance(ours, torch.Tensor):
            assert_close(ours.reshape(total, -1, 3), torch.cat(parts))
        else:
            assert ours == parts[0]
    assert not any(hasattr(t, "_hyperfan_samples") for t in held(cache))
    by_vmap = any(reason is not None and "rows" not in key for key, reason in net.per_sample.mixing.items())
    assert by_vmap == (how == "vmap" and called != "one")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_cache_that_grows_is_looked_at_once_and_one_with_another_value_again():
    """What scripted code does is only seen at a first look."""

    @torch.jit.script
    def scripted(x):
        return x.flip(0)

    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, cache):
            cache.keys = torch.cat([cache.keys, self.layer(x)], 1)
            return scripted(cache.keys.sum(1)) if cache.steps else cache.keys.sum(1)

    net = hypernet(Choosing()).double()
    x, keys, codes = (torch.randn(*shape).double() for shape in ((3, 2, 3), (3, 5, 3), (3, 4)))
    cache, each = Cache(keys), [Cache(k) for k in keys.split(1)]
    for step in range(4):
        cache.steps = step == 3
        out = net(x, cache, embedding=codes)
        for its in each:
            its.steps = step == 3
        parts = zip(x.split(1), each, codes, strict=True)
        assert_close(out, torch.cat([net(part, its, embedding=code) for part, its, code in parts]))
        assert len(net.per_sample.mixing) == 1 + (step == 3)


def test_what_a_mainnet_leaves_is_left():
    """Tensors in objects that it only reads stay the same ones, so that their gradients can be read there."""

    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, batch):
            return self.layer(batch.keys), batch

    net = hypernet(Reading())
    batch = Cache(torch.randn(2, 3, requires_grad=True))
    keys, fixed = batch.keys, batch.fixed
    out, same = net(batch, embedding=torch.randn(2, 4))
    out.sum().backward()
    assert (same, batch.keys, batch.fixed) == (batch, keys, fixed)
    assert keys.grad is not None


def test_a_call_that_fails_changes_nothing():
    class Failing(Remembering):
        def forward(self, x, cache):
            super().forward(x, cache)
            raise ValueError("after it changed the cache")

    net = hypernet(Failing("batched"))
    for make in MAKERS.values():
        cache = make(torch.randn(2, 5, 3))
        before = copy.copy(held(cache))
        with pytest.raises(ValueError, match="after it changed"):
            net(torch.randn(2, 1, 3), cache, embedding=torch.randn(2, 4))
        assert all(a is b for a, b in zip(held(cache), before, strict=True))


def test_rows_that_are_written_in_place_are_the_callers():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, table):
            if bool(x.sum() > 0):
                x = 2 * x
            table[0].mul_(2)
            return self.layer(x)

    net = hypernet(Writing())
    table = torch.ones(4, 5)
    x = torch.tensor([1.0, -1.0, 1.0, 1.0])[:, None].expand(4, 3).clone()
    net(x, [table], embedding=torch.randn(4, 4))
    assert torch.equal(table, torch.full((4, 5), 2.0))


@pytest.mark.full
def test_a_compiled_net_changes_dictionaries_too():
    torch.manual_seed(0)
    net = hypernet(Remembering("batched"))
    x, keys, codes = torch.randn(2, 1, 3), torch.randn(2, 5, 3), torch.randn(2, 4)
    ours, theirs = {"keys": keys}, {"keys": keys}
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, ours, embedding=codes), net(x, theirs, embedding=codes))
    torch.testing.assert_close(ours["keys"], theirs["keys"])
