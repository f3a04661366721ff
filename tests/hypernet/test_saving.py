"""Saved nets: what is refused, what is kept, and that nothing is half-written."""

import json
import signal

import numpy as np
import pytest
import safetensors.torch
import torch
from small_nets import Custom, WithToken, X, mlp
from torch import nn

import hyperfan as hf
import needs
from hyperfan.errors import CheckpointError
from hyperfan.hypernet.unsaved import MARK_TOLERANCE, marks


@pytest.fixture
def saved(tmp_path):
    net = hf.HyperNet(mlp(), 4, trunk=(3,))
    net.save_pretrained(tmp_path / "net")
    return tmp_path / "net"


def load(path, main=None):
    return hf.HyperNet.from_pretrained(path, main or mlp())


def weights(folder):
    (file,) = folder.glob("*.safetensors")
    return file


def test_nothing_there(tmp_path):
    with pytest.raises(hf.HyperfanError, match=r"holds no saved hypernet: it has no config\.json$"):
        load(tmp_path)
    (tmp_path / "trainer_state.json").touch()
    with pytest.raises(hf.HyperfanError, match=r"Trainer's checkpoint: .*\[hyperfan.hypernet.SaveConfig\(\)\]"):
        load(tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights(saved, keep):
    file = weights(saved)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(hf.HyperfanError, match="damaged or truncated"):
        load(saved)


def test_truncated_config(saved):
    config = saved / "config.json"
    config.write_text(config.read_text()[:50])
    with pytest.raises(hf.HyperfanError, match="is damaged"):
        load(saved)


def test_missing_weights_and_foreign_config(saved):
    weights(saved).unlink()
    with pytest.raises(hf.HyperfanError, match="is missing, though"):
        load(saved)
    (saved / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(hf.HyperfanError, match=r"not of a saved hypernet: it lacks .*embedding"):
        load(saved)


def test_another_mainnet(saved):
    with pytest.raises(hf.HyperfanError, match=r"another mainnet: '4.weight' is of shape \(2, 5\) there"):
        load(saved, nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)))
    with pytest.raises(hf.HyperfanError, match=r"'4.weight' is of shape \(2, 5\) there and absent"):
        load(saved, nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5)))


def test_another_activation_or_a_trunk_too_many(saved):
    relu = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
    with pytest.raises(hf.HyperfanError, match="another mainnet: '1' is Tanh there and ReLU in the mainnet given"):
        load(saved, relu)
    with pytest.raises(hf.HyperfanError, match=r"saved with the trunk \[3\]: leave trunk= out"):
        hf.HyperNet.from_pretrained(saved, mlp(), trunk=nn.Linear(4, 3))
    config = json.loads((saved / "config.json").read_text())
    config["embedding"]["colour"] = "red"
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(hf.HyperfanError, match="an embedding, heads, settings or a plan that are not known here"):
        load(saved)


def test_a_trunk_of_ones_own_must_be_given_again(tmp_path):
    net = hf.HyperNet(mlp(), 4, trunk=nn.Sequential(nn.Linear(4, 3), nn.GELU()))
    net.save_pretrained(tmp_path / "net")
    with pytest.raises(hf.HyperfanError, match="pass one like it with trunk="):
        load(tmp_path / "net")


@pytest.mark.parametrize("heads", [hf.LowRank(np.int64(2)), hf.LoRA(np.int64(2)), hf.Chunks(size=np.int64(4))])
def test_integers_of_numpy_are_integers(heads, tmp_path):
    main = nn.Sequential(nn.Linear(8, 8))
    net = hf.HyperNet(main, 6, heads=heads)
    net.save_pretrained(tmp_path)
    read = hf.HyperNet.from_pretrained(tmp_path, main)
    assert read.heads.config == heads
    assert torch.equal(read.generate()["0.weight"], net.generate()["0.weight"])


def test_settings_that_are_numbers_of_numpy(tmp_path):
    embedding = hf.Embedding(np.int64(4), std=np.float32(0.5), trainable=np.True_)
    net = hf.HyperNet(mlp(), embedding)
    net.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert again.embeddings.config == net.embeddings.config
    assert torch.equal(again(X), net(X))


def test_no_silent_overwrite_and_no_leftovers(saved):
    other = hf.HyperNet(mlp(), 4)
    before = {f.name: f.read_bytes() for f in saved.iterdir()}
    with pytest.raises(hf.HyperfanError, match="overwrite=True"):
        other.save_pretrained(saved)
    assert {f.name: f.read_bytes() for f in saved.iterdir()} == before
    other.save_pretrained(saved, overwrite=True)
    assert len(list(saved.iterdir())) == 2
    assert torch.equal(load(saved)(X), other(X))


def test_saving_removes_nobody_elses_files(tmp_path):
    shard = tmp_path / "model-00001-of-00002.safetensors"
    shard.write_bytes(b"someone's weights")
    net = hf.HyperNet(mlp(), 4)
    net.save_pretrained(tmp_path)
    net.reset_parameters()
    net.save_pretrained(tmp_path, overwrite=True)
    assert shard.read_bytes() == b"someone's weights"
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    net.reset_parameters()
    net.save_pretrained(tmp_path, overwrite=True)
    assert shard.exists()


def test_an_interrupted_save_leaves_the_old_one(saved, monkeypatch):
    """Wherever the new save stops, what is on disk is one whole hypernet."""
    old = load(saved)(X)
    new = hf.HyperNet(mlp(), 4)
    from hyperfan.hypernet import saving

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    for module, step in ((safetensors.torch, "save_file"), (saving, "checksum"), (saving, "_config")):
        with monkeypatch.context() as patch:
            patch.setattr(module, step, killed)
            with pytest.raises(Killed):
                new.save_pretrained(saved, overwrite=True)
        assert torch.equal(load(saved)(X), old), step


def test_loading_does_not_draw_random_numbers(saved):
    state = torch.get_rng_state()
    main = mlp()
    after_main = torch.get_rng_state()
    load(saved, main)
    assert torch.equal(torch.get_rng_state(), after_main)
    assert not torch.equal(after_main, state)


def test_a_loaded_net_is_reset_as_the_original(tmp_path):
    init = hf.init.method("hyperfan-in", bias_share=0.2)
    options = {"generate": "weights+biases", "fidelity": "paper", "distribution": "normal", "trunk": (9,)}
    net = hf.HyperNet(mlp(), 4, init=init, **options)
    net.save_pretrained(tmp_path / "net")
    loaded = load(tmp_path / "net")
    for each in (net, loaded):
        each.reset_parameters(torch.Generator().manual_seed(3))
    assert loaded.plan == net.plan
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in loaded.state_dict().items())


def test_what_is_not_saved_comes_from_the_mainnet_given(tmp_path):
    class Scaled(WithToken):
        def __init__(self):
            super().__init__()
            self.register_buffer("factor", torch.full((3,), 2.0), persistent=False)

        def forward(self, x):
            return self.factor * super().forward(x)

    x = torch.randn(2, 3)
    net = hf.HyperNet(Scaled(), 4, example=x)
    net.save_pretrained(tmp_path / "net")
    loaded = hf.HyperNet.from_pretrained(tmp_path / "net", Scaled(), example=x)
    assert torch.equal(loaded(x), net(x))
    loaded.reset_parameters()  # the token has values now


def test_a_loaded_net_can_be_reset_if_its_nonlinearities_are_known(tmp_path):
    x = torch.randn(3, 4)
    hf.HyperNet(Custom(), 5, example=x).save_pretrained(tmp_path / "net")
    loaded = load(tmp_path / "net", Custom())
    with pytest.raises(hf.HyperfanError, match="pass example="):
        loaded.reset_parameters()
    hf.HyperNet.from_pretrained(tmp_path / "net", Custom(), example=x).reset_parameters()


@pytest.mark.parametrize("heads", ["shared", "separate", hf.LowRank(2), hf.Chunks()])
def test_layers_that_only_a_run_shows_are_loaded_without_one(tmp_path, heads):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return x @ self.W

    main, x = nn.Sequential(Product(), nn.Tanh(), Product(), nn.Linear(4, 4)), torch.randn(3, 4)
    net = hf.HyperNet(main, 3, heads=heads, example=x)
    assert len(net.generated) == 3
    net.save_pretrained(tmp_path / "net")
    assert torch.equal(hf.HyperNet.from_pretrained(tmp_path / "net", main)(x), net(x))


def test_a_weight_that_was_left_out_as_advised_keeps_its_values_at_a_reset():
    main, x = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 2)), torch.randn(3, 4)
    with pytest.raises(hf.HyperfanError, match=r"leave '2.weight' out of generate="):
        hf.HyperNet(main, 3, example=x)
    net = hf.HyperNet(main, 3, example=x, generate="0.weight")
    before = net.mainnet.get_parameter("2.weight").clone()
    net.reset_parameters()
    assert torch.equal(net.mainnet.get_parameter("2.weight"), before)


# ── frozen parameters of the mainnet ────────────────────────────────────────────────────────────────────────────────


def half_frozen(**kwargs):
    torch.manual_seed(0)
    mainnet = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 2))
    mainnet[2].requires_grad_(False)
    mainnet.register_buffer("offset", torch.ones(2), persistent=False)
    return mainnet, hf.HyperNet(mainnet, 4, generate=["0.weight", "4.weight"], **kwargs)


def test_frozen_parameters_are_the_mainnets_own():
    mainnet, net = half_frozen()
    assert net.mainnet[2].weight.data_ptr() == mainnet[2].weight.data_ptr()
    assert net.mainnet[0].bias.data_ptr() != mainnet[0].bias.data_ptr()


@pytest.mark.parametrize("frozen", [False, True])
def test_frozen_parameters_are_saved_if_asked(tmp_path, frozen):
    from safetensors import safe_open

    mainnet, net = half_frozen()
    x = torch.randn(3, 6)
    net.save_pretrained(tmp_path, frozen=frozen)
    with safe_open(next(tmp_path.glob("*.safetensors")), "pt") as file:
        assert ("mainnet.2.weight" in set(file.keys())) == frozen
    read = hf.HyperNet.from_pretrained(tmp_path, mainnet)
    assert torch.equal(read(x), net(x))
    assert not read.mainnet[2].weight.requires_grad
    assert (read.mainnet[2].weight.data_ptr() == mainnet[2].weight.data_ptr()) == (not frozen)
    assert len(read.skeleton.lent_parameters()) == (0 if frozen else 2)
    with torch.device("meta"):
        empty, _ = half_frozen()
    if frozen:
        again = hf.HyperNet.from_pretrained(tmp_path, empty)
        assert torch.equal(again(x), net(x))
        assert torch.equal(again.mainnet.offset, torch.ones(2))  # though no state_dict holds it
    else:
        with pytest.raises(hf.HyperfanError, match=r"'2.weight' is frozen .* save_pretrained\(…, frozen=True\)"):
            hf.HyperNet.from_pretrained(tmp_path, empty)
        with torch.no_grad():
            mainnet[2].weight.mul_(-1)
        with pytest.warns(hf.HyperfanWarning, match="frozen value of '2.weight' is not saved with the net"):
            hf.HyperNet.from_pretrained(tmp_path, mainnet)


def test_marks_of_complex_values_see_both_parts():
    value = torch.complex(torch.randn(40, 40), torch.randn(40, 40))
    same, other = value.to(torch.complex128), torch.complex(value.real, -value.imag)
    taken = marks({"a": value, "b": same, "c": other})
    assert taken["a"] == pytest.approx(taken["b"], abs=1e-6)
    assert abs(taken["a"] - taken["c"]) > MARK_TOLERANCE


def test_a_frozen_parameter_that_was_trained_in_between_is_saved(tmp_path):
    _, net = half_frozen()
    net.mainnet[2].weight.requires_grad_(True)
    with torch.no_grad():
        net.mainnet[2].weight.add_(1)
    net.mainnet[2].weight.requires_grad_(False)
    net.save_pretrained(tmp_path)
    x = torch.randn(3, 6)
    assert torch.equal(hf.HyperNet.from_pretrained(tmp_path, half_frozen()[0])(x), net(x))


def test_loading_does_not_change_the_mainnet():
    mainnet, net = half_frozen()
    before, state = mainnet[2].weight.clone(), net.state_dict()
    net.load_state_dict({k: v for k, v in state.items() if k != "mainnet.2.weight"})
    assert len(net.skeleton.lent_parameters()) == 2
    net.load_state_dict({**state, "mainnet.2.weight": state["mainnet.2.weight"] + 1})
    assert torch.equal(mainnet[2].weight, before)
    assert torch.equal(net.mainnet[2].weight, before + 1)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"mainnet.0.bias\""):
        net.load_state_dict({k: v for k, v in state.items() if k != "mainnet.0.bias"})


@pytest.mark.parametrize("damaged", [
    {"plan": None}, {"plan": {"rows": [{}]}}, {"plan": {"rows": 3}}, {"modules": []}, {"settings": "x"}, {"mainnet": 3},
    {"added_tasks": "x"}, {"frozen_tasks": 3}, {"base": True}, {"buffers": ["x"]}, {"frozen_values": {"x": 1.0}},
    {"heads": "x"}, {"code_square": "x"},
], ids=str)  # fmt: skip
def test_a_damaged_configuration_is_one_line(saved, damaged):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, **damaged}))
    with pytest.raises(hf.HyperfanError, match=r"config\.json"):
        load(saved)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "3", "null"], ids=["lists", "tables", "3", "null"])
def test_what_is_no_configuration_is_one_line(saved, text):
    (saved / "config.json").write_text(text)
    with pytest.raises(hf.HyperfanError, match=r"config\.json is"):
        load(saved)


def test_a_save_removes_no_file_outside_of_its_folder(saved):
    (saved.parent / "mine").touch()
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "weights": "../mine"}))
    hf.HyperNet(mlp(), 4).save_pretrained(saved, overwrite=True)
    assert (saved.parent / "mine").exists()


@needs.POSIX
def test_a_full_disk_is_one_line_and_leaves_what_was_saved(saved):
    """A limit on the size of files stands for it."""
    import resource

    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="the disk is full") as caught:
            hf.HyperNet(nn.Linear(9, 9), 7).save_pretrained(saved, overwrite=True)
        with pytest.raises(CheckpointError, match="the disk is full"):
            hf.HyperNet(nn.Linear(9, 9), 7, heads=hf.LoRA(rank=9)).save_adapter(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, action)
    assert "\n" not in str(caught.value)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
