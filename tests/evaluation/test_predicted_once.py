"""A default `emcmc sample` makes each prediction once, for table, diagnosis and page."""

import json
from collections import Counter

import torch

from entropy_mcmc.cli import main
from entropy_mcmc.posterior import forward
from entropy_mcmc.posterior.model_tensors import content_digest, layout


def test_each_sample_predicts_each_set_once(tmp_path, monkeypatch, capsys):
    counted, called = Counter(), forward._called

    def counting(work, inputs):
        tensors = {name: slot.tensor for name, slot in layout(work.model).stored.items()}
        key = content_digest(tensors), content_digest({"x": inputs})
        counted[key] += 1
        return called(work, inputs)

    monkeypatch.setattr(forward, "_called", counting)
    folder = tmp_path / "run"
    flags = ["schedule.epochs=4", "schedule.cycles=2", "schedule.samples_per_cycle=2"]
    flags += ["sampler.fused=no", "compute.accelerator=cpu", "output.progress=false"]
    assert main(["sample", f"--run_dir={folder}", *(f"--{flag}" for flag in flags)]) == 0
    assert (folder / "report.html").exists()
    assert (folder / "diagnostics.json").exists()
    assert "ood:shuffled" in capsys.readouterr().out
    # 360 test rows and 360 with shuffled pixels, in batches of 256; the samples and the baseline.
    samples = len(json.loads((folder / "samples" / "manifest.json").read_text())["samples"])
    assert samples == 4  # two for each cycle: the recipe keeps θ
    assert len({sample for sample, _ in counted}) == samples + 1
    assert len({inputs for _, inputs in counted}) == 4
    assert len(counted) == (samples + 1) * 4
    assert set(counted.values()) == {1}
    assert torch.is_grad_enabled()
