"""Runs on the user's own files, from the file to predictions by name."""

import csv

import numpy as np
import pytest
from PIL import Image

from entropy_mcmc import sample
from entropy_mcmc.cli import main
from entropy_mcmc.data import from_columns, load

SHORT = ["--schedule.epochs", "8", "--schedule.cycles", "1", "--schedule.burn_in", "0.5"]
SHORT += ["--output.report", "false", "--sampler.fused", "no", "--data.batch_size", "10"]


def write(file, columns):
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def flowers(rows=60):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, rows)
    return {
        "length": (kind * 4 + rng.normal(size=rows)).round(3),
        "colour": np.array(["red", "blue"])[rng.integers(0, 2, rows)],
        "kind": np.array(["iris, blue", "rose"])[kind],
    }


def test_from_a_csv_to_predictions_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    columns = flowers()
    write(tmp_path / "flowers.csv", columns)
    assert main(["sample", "--data.name", "flowers.csv", *SHORT]) == 0
    assert (tmp_path / "runs/flowers-emcmc/config.yaml").is_file()
    # Columns in another order, and one that training did not have: names decide.
    new = {"note": ["?"] * 4, "colour": columns["colour"][:4], "length": columns["length"][:4]}
    write(tmp_path / "new.csv", new)
    assert main(["predict", "runs/flowers-emcmc", "new.csv", "-o", "out.csv"]) == 0
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["class"] for row in rows] == columns["kind"][:4].tolist()
    assert all(abs(float(r["p_iris, blue"]) + float(r["p_rose"]) - 1) < 1e-6 for r in rows)
    assert main(["predict", "runs/flowers-emcmc", "new.csv", "-o", "out.npz"]) == 0
    with np.load(tmp_path / "out.npz") as made:
        assert made["class_names"].tolist() == ["iris, blue", "rose"]
        assert made["probabilities"][0, 0] == pytest.approx(float(rows[0]["p_iris, blue"]))
    del new["length"]
    write(tmp_path / "new.csv", new)
    capsys.readouterr()
    assert main(["predict", "runs/flowers-emcmc", "new.csv", "-o", "out.csv"]) == 1
    assert "new.csv has no column 'length'; it has note, colour" in capsys.readouterr().err


def test_likelihood_decides_for_whole_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = {"x": np.linspace(-1, 1, 40), "y": np.arange(40) // 4}
    write(tmp_path / "counts.csv", columns)
    options = ["--data.name", "./counts.csv", "--likelihood", "regression", *SHORT]
    assert main(["sample", *options]) == 0
    write(tmp_path / "new.csv", {"x": [0.0, 1.0]})
    assert main(["predict", "runs/counts-emcmc", "new.csv", "-o", "out.csv"]) == 0
    assert (tmp_path / "out.csv").read_text().startswith("mean,std,epistemic_std\n")


def test_sample_in_python_with_columns_and_with_images(tmp_path):
    columns = flowers()
    train = from_columns({n: c[:40] for n, c in columns.items()}, "kind")
    test = from_columns({n: c[40:] for n, c in columns.items()}, like=train)
    posterior = sample("mlp", (train, test), epochs=8, cycles=1, burn_in=0.5, batch_size=10)
    right = posterior.predict_proba(test.normalise(test.inputs)).argmax(1) == test.targets
    assert right.float().mean() > 0.8
    for name, grey in (("dark", 20), ("light", 220)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            image = Image.new("L", (12, 10), grey + number)
            image.save(tmp_path / "photos" / name / f"{number}.png")
    photos = load(str(tmp_path / "photos"), side=8)
    posterior = sample("cnn", photos, epochs=4, cycles=1, burn_in=0.5, batch_size=4)
    assert posterior.predict_proba(photos.normalise(photos.inputs[:3])).shape == (3, 2)
