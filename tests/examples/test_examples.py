"""Every example runs on small data, and what it shows is there."""

import ast
import importlib.util
import inspect
import math
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED = {
    "plain_loop",
    "with_lightning",
    "fine_tune_lora",
    "table_pipeline",
    "table_effects",
    "regression_bands",
    "selective_prediction",
    "from_trained_network",
    "last_layer",
    "demo",  # in tests/test_demo.py
}


def example(name):
    """The module of a script, as `python examples/NAME.py` would load it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_plain_loop(capsys):
    printed = example("plain_loop").main(["--rows", "300", "--epochs", "16"])
    assert printed["accuracy"] > 0.8
    text = capsys.readouterr().out
    assert "8 samples" in text
    assert 'recipe "from scratch": EMCMC, 16 passes over 300 examples' in text


# Lightning's own warnings: its pytree module uses a class that torch has deprecated, and it wants
# more workers for the loader.
@pytest.mark.filterwarnings("ignore::FutureWarning:lightning")
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*number of training batches")
@pytest.mark.parametrize("accumulate", ["1", "2"])
def test_lightning(accumulate, capsys):
    pytest.importorskip("lightning", reason="pip install -e .[examples]")
    module = example("with_lightning")
    printed = module.main(["--rows", "320", "--epochs", "16", "--accumulate", accumulate])
    assert printed["samples"] == 8
    assert printed["accuracy"] > 0.6
    assert "SGD, one network" in capsys.readouterr().out


def test_lora_samples_the_adapters_and_stores_the_backbone_once(capsys):
    pytest.importorskip("peft", reason="pip install -e .[examples]")
    printed = example("fine_tune_lora").main(["--pretrain", "20", "--epochs", "2"])
    assert printed["backbones"] == 1
    assert printed["samples"] == 8
    assert math.isfinite(printed["nll"])
    text = capsys.readouterr().out
    assert "trainable params" in text
    assert "last θ alone" in text


def test_the_last_layer_alone(capsys):
    means = example("last_layer").main(["--rows", "400", "--epochs", "3", "--seeds", "1"])
    assert set(means) == {"AdamW", "temperature scaled", "last layer"}
    assert means["last layer"]["accuracy"] > means["AdamW"]["accuracy"] - 0.05
    # 16 matrices of 10 × 65 numbers; the backbone once.
    assert "16 samples of" in capsys.readouterr().out


def test_a_trained_network_becomes_a_posterior_in_fifteen_lines(capsys):
    """On Fashion-MNIST where it is there ($EMCMC_DATA), else on the digits."""
    module = example("from_trained_network")
    tree = ast.parse(inspect.getsource(module.sample_around)).body[0]
    assert tree.end_lineno - tree.body[0].end_lineno <= 15
    assert "entropy_mcmc" not in inspect.getsource(module.train)
    means = module.main(["--rows", "400", "--epochs", "3", "--passes", "3", "--seeds", "2"])
    assert set(means) == {"AdamW", "AdamW, temperature scaled", "AdamW, all passes", "posterior"}
    # Far too short to improve; the average must be in the basin of the trained network.
    assert means["posterior"]["accuracy"] > means["AdamW"]["accuracy"] - 0.05
    text = capsys.readouterr().out
    assert "posterior −" in text
    gap = means["posterior"]["nll"] - means["AdamW"]["nll"]
    assert f"{gap:+.4f} ±" in text


def test_table_pipeline(capsys):
    printed = example("table_pipeline").main(["--chains", "2", "--steps", "200"])
    assert printed["accuracy"] > 0.85
    assert printed["surest"] >= printed["accuracy"]
    assert "16 networks" in capsys.readouterr().out


def test_table_effects(tmp_path):
    picture = tmp_path / "effects.png"
    options = ["--steps", "100", "--every", "16", "--picture", str(picture)]
    found = example("table_effects").main(options)
    assert found["importance of the first column"] > 0.05
    assert found["rise of its effect"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_regression_bands(tmp_path):
    picture = tmp_path / "bands.png"
    printed = example("regression_bands").main(["--steps", "1600", "--picture", str(picture)])
    assert printed["disagreement in the gap"] > printed["disagreement at data"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_selective_prediction(tmp_path, capsys):
    picture = tmp_path / "selective.png"
    arguments = ["--seeds", "2", "--steps", "200", "--picture", str(picture)]
    curves = example("selective_prediction").main(arguments)
    assert set(curves) == {"SGD", "Entropy-MCMC"}
    for runs in curves.values():
        assert (runs[:, 0] < runs[:, -1]).all()  # refusing the unsure half removes errors
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "surest 80 %" in capsys.readouterr().out
