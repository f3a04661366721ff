"""The public face: few names, and nothing loaded that is not needed."""

import subprocess
import sys

import hyperfan as hf


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_few_public_names_and_all_of_them_there():
    assert len(hf.__all__) <= 20
    for name in hf.__all__:
        assert getattr(hf, name) is not None
    assert set(hf.__all__) <= set(dir(hf))


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(hf, "HyperNt")


def test_importing_loads_torch_and_the_standard_library_only():
    """Also the readers of data: Pillow is loaded for a picture, and what fetches them when it is called.

    Nor does a first net make torch load its compiler, which takes as long as all of torch.
    """
    net = "hyperfan.init; hyperfan.HyperNet(torch.nn.Linear(3, 2), 4, trunk=(8,))"
    loaded = run(f"import sys, torch, hyperfan, hyperfan.data.fetch; {net}; print(*sys.modules)").split()
    assert {"torch", "hyperfan.data.folder"} <= set(loaded)
    absent = "rich", "tyro", "safetensors", "PIL", "pooch", "requests", "hyperfan.cli", "sympy", "torch._dynamo"
    assert not set(absent) & set(loaded)


def test_help_answers_without_torch():
    out = run(
        "import contextlib, sys; from hyperfan.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(*sys.modules)"
    )
    assert "hyperfan compare" in out
    assert "torch" not in out.splitlines()[-1].split()


def test_formulas_load_without_torch():
    assert "torch" not in run("import sys, hyperfan.formulas.targets; print(*sys.modules)").split()
