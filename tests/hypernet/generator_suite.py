"""What every generator must do. A generator lists its CASES and inherits the suite."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hyperfan as hf
from checks import assert_close, assert_mean
from hyperfan.codes.trunk import trunk_widths


@dataclass(frozen=True)
class Case:
    """A hypernet, how it is called, and a slow, obvious way to generate what it generates.

    Args:
        make: builds the net around a given mainnet.
        call: keyword arguments of one call, such as task= or embedding=.
        oracle: from the net and those arguments to the generated tensors by name.
    """

    make: Callable[[nn.Module], hf.HyperNet]
    oracle: Callable[..., dict[str, Tensor]]
    call: Callable[[], dict[str, Any]] = dict


def mainnet() -> nn.Module:
    """Small, with what matters: repeated shapes, a convolution, a norm with buffers, biases."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 5),
        nn.Tanh(), nn.Linear(5, 5),
    )  # fmt: skip


def inputs(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(4, 2, 4, 4, dtype=dtype, generator=torch.Generator().manual_seed(1))


def build(case: Case, dtype: torch.dtype = torch.float32) -> hf.HyperNet:
    torch.manual_seed(0)
    return case.make(mainnet().to(dtype)).eval()


def identity_of(net: hf.HyperNet, tensor: int, code: int) -> list[Tensor]:
    """The vectors that stand behind the condition of a code, by their definition."""
    found, embeddings, parts = [], net.embeddings, net.embeddings.config.identity
    if not isinstance(parts, dict):
        return [embeddings.identity[code]] if embeddings.identities else []
    names = [t.name for t in net.generated]
    layers, modules = ([n.split(".")[0] for n in names], [n.split(".", 1)[1] for n in names])  # as in 0.weight
    for part in parts:
        of = {"layer": layers, "module": modules}.get(part)
        row = code - net.heads.spans[tensor].start if of is None else list(dict.fromkeys(of)).index(of[tensor])
        found.append(getattr(embeddings, f"identity_{part}")[row])
    return found


def double(call: dict[str, Any]) -> dict[str, Any]:
    return {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in call.items()}


REDRAWS, CODES_PER_REDRAW = 40, 6
"""Of a head, and codes for each. A tensor of three values then scatters by half its mean square, the mean by 1/12."""


def overlap(h: Tensor) -> float:
    """m² = √(Σ_rs (h_r·h_s)²/R) of R codes whose products are summed; of one code ‖h‖²."""
    return ((h @ h.mT).square().sum() / len(h)).sqrt().item()


class GeneratorSuite:
    CASES: dict[str, Case]
    GRAPHS: tuple[str, ...]
    """Cases that make different graphs, which are compiled and exported; all of them, if a generator does not say."""
    TRAINING_GRAPH = False
    """Whether a quick run also compiles training, on the first of these."""
    BACKWARD_GRAPHS: tuple[str, ...] = ()
    """Of these graphs, those whose backward a quick run traces too; a graph of the same functions need not be here."""
    SEED_OF_ANOTHER_MAINNET = 5
    """With which a mainnet of other values is built; 0, as of the first, where its values are not saved."""

    def test_generated_tensors_equal_the_oracle_with_their_gradients(self, case):
        net = build(case, torch.float64)
        call = double(case.call())
        fast, slow = net.generate(**call), case.oracle(net, **call)
        assert list(fast) == [t.name for t in net.generated]
        for name in fast:
            assert_close(fast[name], slow[name])
        trained = [p for n, p in net.named_parameters() if not n.startswith("mainnet.")]
        targets = {name: torch.randn_like(t) for name, t in fast.items()}
        grads = [
            torch.autograd.grad(sum((made[n] * targets[n]).sum() for n in made), trained, allow_unused=True)
            for made in (fast, slow)
        ]
        for a, b in zip(*grads, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert_close(a, b)

    def code_moment(self, net: hf.HyperNet, h: Tensor) -> float:
        """The second moment that a tensor's variance depends on, of all codes (n, d_k) that its heads read."""
        return h.square().sum(-1).mean().item()

    @torch.no_grad()
    def test_a_tensor_has_the_variance_of_its_contraction(self, case):
        """In the mean over maps of variance 1, beside which nothing is added, and over codes that are somewhat alike.

        A number of terms that is wrong is wrong by half or more.
        """
        net = build(case, torch.float64)
        heads, ratios = net.heads, {t.name: [] for t in net.generated}
        for name, buffer in heads.named_buffers():
            if name.rpartition(".")[2] == "scale":
                buffer.fill_(1.0)
        for _ in range(REDRAWS):
            for p in heads.parameters():
                p.zero_()
            for part in heads.parts():
                part.map.weight.normal_()
            codes = torch.randn(CODES_PER_REDRAW, heads.n, heads.width).double()
            codes += torch.randn(CODES_PER_REDRAW, 1, heads.width)
            made, read = heads.make(codes), heads.head_inputs(codes)
            for i, (name, of_net) in enumerate(ratios.items()):
                variances = [heads.tensor_variance(i, 1.0, self.code_moment(net, h[heads.spans[i]])) for h in read]
                of_net.append((made[name].square().flatten(1).mean(1) / torch.tensor(variances)).mean().item())
        for of_net in ratios.values():
            assert_mean(torch.tensor(of_net), 1.0)

    def test_forward_equals_the_mainnet_with_those_tensors(self, case):
        net = build(case, torch.float64)
        call = double(case.call())
        x, made = inputs(torch.float64), case.oracle(net, **call)
        kept = {k.removeprefix("mainnet."): v for k, v in net.state_dict().items() if k.startswith("mainnet.")}
        plain = mainnet().double().eval()
        batched = next(iter(made.values())).ndim > len(net.generated[0].shape)
        rows = [{k: v[i] for k, v in made.items()} for i in range(len(x))] if batched else [made]
        outs = []
        for i, row in enumerate(rows):
            plain.load_state_dict({**kept, **row})
            outs.append(plain(x[i : i + 1] if batched else x))
        assert_close(net(x, **call).detach(), torch.cat(outs).detach())

    def test_state_dict_holds_only_the_hypernet_and_goes_round(self, case):
        net, call, x = build(case), case.call(), inputs()
        generated = {t.name for t in net.generated}
        for key in net.state_dict():
            assert key.split(".")[0] in {"embeddings", "trunk", "heads", "mainnet"}
            assert key.removeprefix("mainnet.") not in generated
        torch.manual_seed(self.SEED_OF_ANOTHER_MAINNET)
        main = mainnet()
        torch.manual_seed(5)
        other = case.make(main).eval()
        other.load_state_dict(net.state_dict())
        assert torch.equal(other(x, **call), net(x, **call))

    def test_deepcopy_and_pickle(self, case):
        net, call, x = build(case), case.call(), inputs()
        for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert torch.equal(twin(x, **call), net(x, **call))
            assert str(twin.plan) == str(net.plan)
            with torch.no_grad():
                for p in twin.parameters():
                    p.add_(1.0)
            assert not torch.equal(twin(x, **call), net(x, **call))

    def test_double(self, case):
        net, call, x = build(case), case.call(), inputs()
        single = net(x, **call)
        out = net.double()(x.double(), **double(call))
        assert out.dtype == torch.float64
        torch.testing.assert_close(out.float(), single, rtol=1e-4, atol=1e-5)

    @pytest.mark.one_per_graph
    def test_compile_fullgraph(self, case, request):
        net, call, x = build(case, torch.float64), double(case.call()), inputs(torch.float64)
        torch._dynamo.reset()
        full = request.config.getoption("full")
        backward = full or any(case is self.CASES[name] for name in self.BACKWARD_GRAPHS)
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager" if backward else "eager")
        grads = []
        for function in (compiled, net):
            out = function(x, **call)
            grads.append((out, *torch.autograd.grad(out.square().sum(), list(net.parameters()), allow_unused=True)))
        torch.testing.assert_close(*grads)
        # Training is a graph of its own, in which a norm differs and no generator.
        again = full or (self.TRAINING_GRAPH and case is self.CASES[self.GRAPHS[0]])
        if again and net.codes(**call).ndim == 2:  # batch norm does not train with one set of weights per sample
            compiled.train()
            compiled(x, **call).sum().backward()

    @pytest.mark.one_per_graph
    def test_export(self, case):
        net, call, x = build(case), case.call(), inputs()
        exported = torch.export.export(net, (x,), call).module()
        torch.testing.assert_close(exported(x, **call), net(x, **call))

    def test_vmap(self, case):
        """Over given embeddings; where they are stored, over inputs."""
        net, call, x = build(case), case.call(), inputs()
        if "embedding" in call and net.codes(**call).ndim == 2:
            many = torch.stack([call["embedding"] * s for s in (1.0, -0.5, 2.0)])
            together = torch.func.vmap(lambda e: net(x, embedding=e))(many)
            one_by_one = torch.stack([net(x, embedding=e) for e in many])
        else:
            many = torch.stack([x, 2 * x, -x])
            together = torch.func.vmap(lambda x: net(x, **call))(many)
            one_by_one = torch.stack([net(x, **call) for x in many])
        torch.testing.assert_close(together, one_by_one)

    def test_meta_construction_then_reset(self, case):
        with torch.device("meta"):
            empty = mainnet()
        net = case.make(empty)
        assert all(t.is_meta for t in (*net.parameters(), *net.buffers()))
        with pytest.raises(hf.HyperfanError, match="to_empty"):
            net.reset_parameters()
        net.to_empty(device="cpu")
        with torch.no_grad():
            for t in (*net.parameters(), *net.buffers()):
                t.fill_(float("nan") if t.is_floating_point() else -1)
        net.reset_parameters(torch.Generator().manual_seed(0))
        assert all(torch.isfinite(t).all() for t in net.state_dict().values())
        assert torch.isfinite(net.eval()(inputs(), **case.call())).all()

    def test_training_reaches_every_parameter(self, case):
        net = build(case)
        net.train(net.codes(**case.call()).ndim == 2)
        for _ in range(2):  # heads that start at zero pass nothing on to what lies before them in the first step
            net.zero_grad()
            net(inputs(), **case.call()).square().sum().backward()
            torch.optim.SGD(net.parameters(), lr=1e-3).step()
        for name, p in net.named_parameters():
            assert p.grad is not None, name
            assert p.grad.any(), name

    def test_freeze_is_an_ordinary_module_of_its_own(self, case):
        net, call, x = build(case, torch.float64), double(case.call()), inputs(torch.float64)
        if net.codes(**call).ndim == 3:
            with pytest.raises(hf.HyperfanError):
                net.freeze(**call)
            return
        plain = net.freeze(**call)
        assert type(plain) is nn.Sequential
        assert_close(plain(x).detach(), net(x, **call).detach())
        assert plain.state_dict().keys() == mainnet().state_dict().keys()
        with torch.no_grad():
            for p in plain.parameters():
                p.zero_()
        assert net(x, **call).any()

    def test_save_and_load(self, case, tmp_path):
        net, call, x = build(case), case.call(), inputs()
        net.save_pretrained(tmp_path / "net")
        trunk = copy.deepcopy(net.trunk) if trunk_widths(net.trunk) is None else None
        torch.manual_seed(self.SEED_OF_ANOTHER_MAINNET)
        loaded = hf.HyperNet.from_pretrained(tmp_path / "net", mainnet(), trunk=trunk).eval()
        assert torch.equal(loaded(x, **call), net(x, **call))
        assert loaded.plan == net.plan
        assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in net.parameters()]

    def test_rescale_multiplies_one_tensor_and_says_so_on_the_meta_device(self, case):
        net, call = build(case, torch.float64), double(case.call())
        name = net.generated[0].name
        before = net.generate(**call)
        net.rescale_({name: 1.5})
        for other, tensor in net.generate(**call).items():
            assert_close(tensor, before[other] * (1.5 if other == name else 1.0))
        with torch.device("meta"):
            empty = mainnet()
        with pytest.raises(hf.HyperfanError, match="to_empty"):
            case.make(empty).rescale_({name: 1.5})
