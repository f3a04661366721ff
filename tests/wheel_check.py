"""Build wheel and sdist, and do with the wheel what users do, in an environment that has nothing else.

``python tests/wheel_check.py`` (``make wheel``); ``--torch 2.7.0`` takes another torch than constraints.txt, and
``--environment DIR`` an environment that is there already, of any Python.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NETS = """
import torch
from torch import nn
import hyperfan as hf

def mainnet():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

def healthy():
    return hf.HyperNet(mainnet(), 16), torch.randn(50, 64), torch.randint(10, (50,))

def sick():
    return hf.HyperNet(mainnet(), 16, init="kaiming-fan-in"), torch.randn(50, 64), torch.randint(10, (50,))
"""
USE = """
import hyperfan as hf, torch
from torch import nn
assert "site-packages" in hf.__file__, hf.__file__
assert all(getattr(hf, name) is not None for name in hf.__all__)
mainnet = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
for heads in (None, hf.LowRank(2), hf.LoRA(2), hf.Chunks(size=64, flat=True, embedding=4)):
    net = hf.HyperNet(mainnet, hf.Embedding(4, given=True, per="net"), heads=heads, trunk=(8,))
    for make in (hf.SGD, hf.Adam, hf.AdamW):
        opt, x, e = make(net, lr=1e-3), torch.randn(5, 8), torch.randn(5, 4)
        net(x, embedding=e).square().mean().backward()
        opt.step()
        opt.release()
    net.save_pretrained("net", overwrite=True)
    again = hf.HyperNet.from_pretrained("net", mainnet)
    torch.testing.assert_close(again(x, embedding=e), net(x, embedding=e))
    net.freeze(embedding=e[0])
print(torch.__version__)
"""


def build(python: str) -> tuple[Path, Path]:
    """Wheel and sdist in dist/."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = f"{folder}/bin/python"
        subprocess.run([inside, "-m", "pip", "install", "-q", "build"], check=True)
        for old in (ROOT / "dist").glob("hyperfan-*"):
            old.unlink()
        subprocess.run([inside, "-m", "build", "--outdir", str(ROOT / "dist"), str(ROOT)], check=True)
    (wheel,), (sdist,) = (ROOT / "dist").glob("*.whl"), (ROOT / "dist").glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel has all of the package and nothing else; the sdist what its tests need."""
    package = ROOT / "src/hyperfan"
    with zipfile.ZipFile(wheel) as zipped, tarfile.open(sdist) as packed:
        held = {name for name in zipped.namelist() if ".dist-info/" not in name}
        sources = {name.partition("/")[2] for name in packed.getnames()}
    files = [p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert held == {f"hyperfan/{p.relative_to(package).as_posix()}" for p in files}, (
        "the wheel lacks files, or has more"
    )
    for needed in (
        "src/hyperfan/py.typed",
        "tests/conftest.py",
        "README.md",
        "LICENSE",
        "CITATION.cff",
        "pyproject.toml",
    ):
        assert needed in sources, f"the sdist lacks {needed}"


def use(environment: Path, version: str) -> None:
    """Commands and a script, in a folder that is not the repository."""
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        (cwd / "my_nets.py").write_text(NETS)
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

        def run(program: str, *args: str, code: int = 0) -> str:
            done = subprocess.run(
                [str(environment / "bin" / program), *args], cwd=cwd, env=clean, capture_output=True, text=True
            )
            told = f"{program} {' '.join(args)}"
            assert done.returncode == code, f"{told}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            print(f"ok: {told[:80].splitlines()[0]}", flush=True)
            return done.stdout

        assert run("hyperfan", "--version").strip() == f"hyperfan {version}"
        assert "hyperfan diagnose" in run("hyperfan", "--help")
        assert len(json.loads(run("hyperfan", "compare", "--seeds", "1", "--batch", "50", "--json"))["rows"]) > 3
        assert "hyperfan-in" in run("hyperfan", "methods")
        run("hyperfan", "plan", "my_nets:mainnet")
        run("hyperfan", "diagnose", "my_nets:healthy")
        run("hyperfan", "diagnose", "my_nets:sick", "--html", "page.html", code=1)
        run("hyperfan", "run", "continual", "--profile", "smoke", "--run-dir", "smoke")
        run("hyperfan", "report", "smoke", "--out", "report.html")
        assert all((cwd / page).stat().st_size > 10_000 for page in ("page.html", "report.html"))
        print("torch", run("python", "-c", USE).strip())


def main() -> None:
    """Build, install, use."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a version of torch, in place of that of constraints.txt")
    parser.add_argument("--environment", type=Path, help="an environment that is there already")
    chosen = parser.parse_args()
    wheel, sdist = build(sys.executable)
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        environment = chosen.environment or Path(folder)
        if chosen.environment is None:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        bounds = [f"torch=={chosen.torch}"] if chosen.torch else ["-c", str(ROOT / "constraints.txt")]
        pip = [str(environment / "bin/python"), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, str(wheel), *([] if chosen.environment else bounds)], check=True)
        subprocess.run([*pip, "--force-reinstall", "--no-deps", str(wheel)], check=True)  # also over an older build
        use(environment, wheel.name.split("-")[1])
    print(f"{wheel.name} and {sdist.name} are good")


if __name__ == "__main__":
    main()
