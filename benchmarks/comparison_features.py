"""What each library for hypernetworks can do, found by doing it: every feature is a small job with a check."""

import copy
import pickle
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from benchmarks.harness import main, store
from benchmarks.libraries import LIBRARIES, Conditioned, Library, NotOffered
from hyperfan.models import Llama

SIZE = 6
"""The size of a condition."""


class Residual(nn.Module):
    """A mainnet that is no chain of layers: convolutions, a norm, a residual connection, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.second, self.last = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        h = h + self.second(torch.relu(self.norm(h)))
        return self.last(h.mean((-2, -1)))


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def made(library: Library) -> tuple[Conditioned, Tensor, Tensor]:
    x = torch.randn(7, 5)
    return library.conditioned(chain(), SIZE, x), x, torch.randn(SIZE)


def agrees(net: Conditioned, mainnet: nn.Module, x: Tensor) -> None:
    """The call gives what the mainnet gives with the generated weights, and gradients reach the hypernet."""
    c = torch.randn(SIZE)
    out = net.call(x, c)
    other = net.call(x, torch.randn(SIZE))
    assert not torch.equal(out, other), "the condition changes nothing"
    rest = dict(net.module.named_parameters())
    biases = {n: rest[k] for n, _ in mainnet.named_parameters() for k in (f"mainnet.{n}", f"1.{n}") if k in rest}
    torch.testing.assert_close(out, functional_call(mainnet, biases | net.weights(c), (x,)))
    out.square().mean().backward()
    assert any(p.grad is not None and p.grad.any() for p in net.module.parameters()), "no gradient arrives"


def any_module(library: Library) -> str:
    mainnet, x = Residual(), torch.randn(4, 1, 6, 6)
    net = library.conditioned(mainnet, SIZE, x)
    agrees(net, mainnet, x)
    return "" if net.own_call else "with functional_call by hand"


def language_model(library: Library) -> str:
    mainnet, x = Llama(11, 8, 2, 2), torch.randint(11, (3, 5))
    net = library.conditioned(mainnet, SIZE, x)
    agrees(net, mainnet, x)
    return "" if net.own_call else "with functional_call by hand"


def some_tensors(library: Library) -> None:
    mainnet, x = Llama(11, 8, 2, 2), torch.randint(11, (3, 5))
    net = library.conditioned(mainnet, SIZE, x, "*.[qv]_proj.weight")
    assert len(net.weights(torch.randn(SIZE))) == 4
    agrees(net, mainnet, x)


def per_sample(library: Library) -> str:
    net, x, _ = made(library)
    conditions = torch.randn(len(x), SIZE)
    expected = torch.cat([net.call(one.unsqueeze(0), c) for one, c in zip(x, conditions, strict=True)])
    torch.testing.assert_close(net.call(x, conditions), expected)
    return net.per_sample


def batched_by_vmap(library: Library) -> None:
    net, x, _ = made(library)
    conditions = torch.randn(4, SIZE)
    expected = torch.stack([net.call(x, c) for c in conditions])
    torch.testing.assert_close(vmap(lambda c: net.call(x, c))(conditions), expected)


def whole_graph(library: Library) -> None:
    net, x, c = made(library)
    compiled = torch.compile(net.call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, c), net.call(x, c))


def copies(library: Library) -> None:
    net, _, _ = made(library)
    copy.deepcopy(net.module)
    pickle.loads(pickle.dumps(net.module))


def saved(library: Library) -> None:
    x, c = torch.randn(7, 5), torch.randn(SIZE)
    mainnet = chain()
    first, second = (library.conditioned(copy.deepcopy(mainnet), SIZE, x) for _ in range(2))
    second.module.load_state_dict(first.module.state_dict())
    torch.testing.assert_close(first.call(x, c), second.call(x, c))


def double(library: Library) -> None:
    x = torch.randn(7, 5).double()
    net = library.conditioned(chain().double(), SIZE, x)
    net.module.double()
    assert net.call(x, torch.randn(SIZE).double()).dtype == torch.float64


def tasks(library: Library) -> None:
    generate = library.tasks(chain(), SIZE)
    assert not torch.equal(generate(0)[0], generate(3)[0])


def chunks(library: Library) -> None:
    mainnet = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40))
    assert library.chunks(mainnet, SIZE)() < sum(p.numel() for p in mainnet.parameters())


def drift(library: Library) -> None:
    assert library.drift(chain(), SIZE) > 0


def lora(library: Library) -> None:
    mainnet, x = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9)), torch.randn(7, 9)
    net = library.lora(mainnet, SIZE, x)
    torch.testing.assert_close(net.call(x, torch.randn(SIZE)), mainnet(x))
    assert not any(p.requires_grad for p in mainnet.parameters())


def right_scale(library: Library) -> str:
    """Weights have variance 1/fan-in at three widths, in the mean of 20 draws, within a fifth of it."""
    found = []
    for width in (32, 128, 512):
        ratios = []
        for _ in range(20):
            net = library.conditioned(nn.Sequential(nn.Linear(width, 24)), SIZE, torch.randn(2, width))
            library.start_(net)
            ratios.append(net.weights(torch.randn(SIZE))["0.weight"].var().item() * width)
        found.append(sum(ratios) / len(ratios))
    told = ", ".join(f"{ratio:.2g}" for ratio in found)
    if not all(2 / 3 < ratio < 1.5 for ratio in found):
        raise AssertionError(f"variance times fan-in is {told} at widths 32, 128, 512")
    return f"{told} of it at widths 32, 128, 512"


FEATURES: dict[str, Callable[[Library], str | None]] = {
    "any module as mainnet": any_module,
    "a Llama as mainnet": language_model,
    "only tensors that a pattern names": some_tensors,
    "a condition for each sample in one call": per_sample,
    "… by torch.func.vmap": batched_by_vmap,
    "a table of tasks": tasks,
    "weights in chunks from a small head": chunks,
    "LoRA of a frozen net from a condition": lora,
    "output regulariser for continual learning": drift,
    "weights start at variance 1/fan-in": right_scale,
    "torch.compile of the whole call (fullgraph)": whole_graph,
    "deepcopy and pickle": copies,
    "state_dict and back": saved,
    "float64": double,
}


def outcome(job: Callable[[Library], str | None], library: Library) -> dict[str, object]:
    """Whether a job works, with what it says or what went wrong."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"works": True, "note": job(library) or ""}
    except NotOffered:
        return {"works": False, "note": "not offered"}
    except (Exception, RecursionError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"works": False, "note": f"{type(error).__name__}: {lines[0].strip()[:160] if lines else ''}"}


def run() -> bool:
    found = {}
    for feature, job in FEATURES.items():
        found[feature] = {library.name: outcome(job, library) for library in LIBRARIES}
        told = "; ".join(f"{name} {'yes' if o['works'] else 'no'} {o['note']}" for name, o in found[feature].items())
        print(f"{feature}: {told}", flush=True)
    store("comparison_features", {"found": found})
    return all(each["hyperfan"]["works"] for each in found.values())


if __name__ == "__main__":
    main("comparison_features", run)
