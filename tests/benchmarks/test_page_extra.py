"""Tables and the picture beside the leagues, from hand-made results."""

import json

from tournament import page_extra


def test_nothing_run_gives_nothing(tmp_path):
    assert page_extra.sections(tmp_path, tmp_path) == ""


def test_all_three_parts(tmp_path):
    def row(*key, nll):
        return {"key": list(key), "measures": {"nll": nll} if nll else {}}

    files = {
        "ingredients-digits": {
            "rows": [
                *(row("EMCMC", seed, nll=nll) for seed, nll in enumerate((0.1, 0.3))),
                *(row("no noise", seed, nll=nll) for seed, nll in enumerate((0.2, 0.5))),
                *(row("no average", seed, nll=nll) for seed, nll in enumerate((0.2, 0.4))),
                row("no guide", 0, nll=0),
            ]
        },
        "budget-digits": {"rows": [row("SGD", p, s, nll=1 / p) for p in (6, 12) for s in (0, 1)]},
        "networks-own-digits": {"EMCMC ×4": [6.5, 5.0, 8.0]},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    text = page_extra.sections(tmp_path, tmp_path / "pictures")
    assert "| EMCMC | 0.2000 ± 0.1000 |" in text
    assert "| no noise | +0.1500 (-0.4853 to +0.7853) |" in text  # t of one degree: 12.706
    assert "| no average | **+0.1000 (+0.1000 to +0.1000)** |" in text
    assert "no guide" not in text  # it diverged
    assert "6.5 (5.0 to 8.0)" in text
    assert (tmp_path / "pictures" / "tournament-budget.png").stat().st_size > 1000


def test_replicas_are_an_ingredient(tmp_path):
    tournament, cells = tmp_path / "tournament", tmp_path / "replicas" / "digits"
    tournament.mkdir()
    cells.mkdir(parents=True)
    rows = [{"key": ["EMCMC", s], "measures": {"nll": nll}} for s, nll in ((0, 0.3), (1, 0.1))]
    (tournament / "ingredients-digits.json").write_text(json.dumps({"rows": rows}))
    assert "four replicas" not in page_extra.ingredients(tournament)
    for seed, nll in ((1, 0.2), (0, 0.4)):
        cell = {"seed": seed, "scores": {"samples": {"nll": nll}, "guide": {"nll": 9}}}
        (cells / f"y4-{seed}.json").write_text(json.dumps(cell))
        (cells / f"y4-coupled-always-{seed}.json").write_text("another method")
    row = "| four replicas | **+0.1000 (+0.1000 to +0.1000)** |"
    assert row in page_extra.ingredients(tournament)
