"""Opening a run folder runs nothing that the user did not name."""

import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from entropy_mcmc.cli import main
from entropy_mcmc.errors import ConfigError, DamagedFileError, UntrustedError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.commands import baseline_config
from entropy_mcmc.run.config_file import in_run_folder, parse, read_config
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.runner import run
from entropy_mcmc.run.trust import Trust, import_function
from run.workers import tiny_config, tiny_model

POISON = """
from pathlib import Path
Path({mark!r}).write_text("imported")

def load(**options):
    from run.workers import tiny_data
    Path({mark!r}).write_text("called")
    return tiny_data(**options)
"""


@pytest.fixture(scope="module")
def innocent(tmp_path_factory):
    """A small run with a baseline, made of functions that the tests name."""
    folder = tmp_path_factory.mktemp("innocent") / "run"
    config = tiny_config(folder, epochs=4, cycles=1)
    run(config)
    run(baseline_config(config))
    return folder


@pytest.fixture
def place(innocent, tmp_path, monkeypatch):
    """A working folder that holds a received run and a module of the name that it gives."""
    shutil.copytree(innocent, tmp_path / "received")
    (tmp_path / "poison.py").write_text(POISON.format(mark=str(tmp_path / "mark")))
    np.savetxt(tmp_path / "in.csv", np.zeros((2, 4)), delimiter=",")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    monkeypatch.delitem(sys.modules, "poison", raising=False)
    yield tmp_path
    sys.modules.pop("poison", None)


def rename(folder, part="data", name="poison:load", **more):
    """Let a config name another function; the model and what is not poisoned become built-in."""
    path = folder / "config.yaml"
    content = yaml.safe_load(path.read_text())
    for key in ("data", "model"):
        chosen = name if key == part else {"data": "digits", "model": "mlp"}[key]
        content[key] |= {"name": chosen}
        content["record"]["problem"][key] = chosen
    content["loss"] = name if part == "loss" else None
    content |= more
    path.write_text(yaml.safe_dump(content, sort_keys=False))


COMMANDS = {
    "evaluate": ["evaluate", "received", "--corruptions", "[none]"],
    "predict": ["predict", "received", "in.csv", "-o", "out.csv"],
    "flatness": ["flatness", "received", "--subset", "8"],
    "report": ["report", "received"],
    "sample": ["sample", "--config", "received/config.yaml"],
    "sample equals": ["sample", "--config=received/config.yaml"],
}


def refused(place, capsys, arguments):
    """The command fails, nothing ran; returns what it says."""
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert not (place / "mark").exists()
    assert "poison" not in sys.modules
    assert "nothing was imported" in error
    return error


def proposed(error):
    """The command that the refusal proposes."""
    (line,) = [line for line in error.splitlines() if line.startswith("  emcmc ")]
    return shlex.split(line)[1:]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("part", ["data", "model", "loss"])
def test_what_a_folder_names_is_not_imported(place, capsys, command, part):
    rename(place / "received", part)
    error = refused(place, capsys, command)
    assert str(place) not in sys.path
    option = part if part == "loss" else f"{part}.name"
    assert proposed(error) == [*command, f"--{option}", "poison:load"]


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_poisoned_baseline_of_an_innocent_folder(place, capsys, command):
    rename(place / "received" / "baseline")
    names = ["--data.name", "run.workers:tiny_data", "--model.name", "run.workers:tiny_model"]
    error = refused(place, capsys, [*COMMANDS[command], *names])
    assert "received/baseline/config.yaml" in error


@pytest.mark.parametrize("command", ["evaluate", "predict", "flatness", "report"])
def test_the_proposed_command_allows_it_and_says_what_it_imports(place, capsys, command):
    content = yaml.safe_load((place / "received" / "config.yaml").read_text())
    rename(place / "received")
    path = place / "received" / "config.yaml"
    changed = yaml.safe_load(path.read_text())
    changed["model"] = content["model"]
    changed["record"]["problem"]["model"] = content["record"]["problem"]["model"]
    path.write_text(yaml.safe_dump(changed, sort_keys=False))
    shutil.rmtree(place / "received" / "baseline")
    allowed = proposed(refused(place, capsys, COMMANDS[command]))
    assert main(allowed) == 0
    error = capsys.readouterr().err
    assert (
        f"importing poison:load from {place / 'poison.py'}, named by received/config.yaml" in error
    )
    assert (place / "mark").read_text() == "called"


@pytest.mark.parametrize("more", [["--trust"], ["--data.name", "poison:load"]])
def test_sample_with_a_config_of_a_run_folder(place, capsys, more):
    content = (place / "received" / "config.yaml").read_text()
    path = place / "received" / "config.yaml"
    path.write_text(content.replace("run.workers:tiny_data", "poison:load"))
    names = ["--model.name", "run.workers:tiny_model"] if "--trust" not in more else []
    arguments = ["sample", "--config", "received/config.yaml", "--run_dir", "new"]
    refused(place, capsys, arguments)
    assert main([*arguments, *names, *more]) == 0
    assert f"from {place / 'poison.py'}" in capsys.readouterr().err


def test_a_flag_that_names_something_else_does_not_allow(place, capsys):
    rename(place / "received", loss="run.workers:slow_loss")
    refused(place, capsys, [*COMMANDS["evaluate"], "--loss", "run.workers:slow_loss"])


@pytest.mark.parametrize("way", ["link", "relative", "deep", "link inside"])
def test_ways_to_a_config_in_a_run_folder(place, capsys, monkeypatch, way):
    rename(place / "received")
    path = Path("received/config.yaml")
    if way == "link":
        (place / "mine.yaml").symlink_to(place / "received" / "config.yaml")
        path = Path("mine.yaml")
    elif way == "relative":
        (place / "received" / "poison.py").write_text((place / "poison.py").read_text())
        monkeypatch.chdir(place / "received")
        path = Path("config.yaml")
    elif way == "deep":
        (place / "received" / "notes" / "more").mkdir(parents=True)
        path = (place / path).rename(place / "received" / "notes" / "more" / "start.yaml")
    else:
        outside = (place / path).rename(place / "outside.yaml")
        (place / "received" / "start.yaml").symlink_to(outside)
        path = Path("received/start.yaml")
    assert in_run_folder(path)
    refused(place, capsys, ["sample", "--config", str(path), "--run_dir", str(place / "new")])


def test_a_config_outside_any_run_folder_is_the_users_word(place, capsys):
    content = yaml.safe_load((place / "received" / "config.yaml").read_text())
    del content["record"]
    content["data"]["name"] = "poison:load"
    (place / "mine.yaml").write_text(yaml.safe_dump(content))
    assert not in_run_folder(Path("mine.yaml"))
    assert main(["sample", "--config", "mine.yaml", "--run_dir", "new"]) == 0
    assert (place / "mark").read_text() == "called"
    assert "importing" not in capsys.readouterr().err  # the user said it, so it need not be said


def test_the_same_command_goes_on_as_before(place, capsys):
    flags = ["sample", "--data.name", "poison:load", "--model.name", "run.workers:tiny_model"]
    flags += ["--schedule.epochs", "4", "--schedule.cycles", "1", "--data.batch_size", "16"]
    flags += ["--run_dir", "mine", "--output.progress", "false", "--sampler.fused", "no"]
    assert main(flags) == 0
    first = capsys.readouterr()
    assert main(flags) == 0
    assert capsys.readouterr().out == first.out
    assert "importing" not in first.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os:system", "Python's own library"),
        ("subprocess:run", "Python's own library"),
        ("importlib.util:find_spec", "Python's own library"),
        ("mine:os.system", "is named as module:function"),
        ("mine:system", r"is defined in \w+, not in mine"),
        ("mine:Path", r"is defined in pathlib, not in mine"),
        (":f", "is named as module:function"),
        ("a b:f", "is named as module:function"),
        ("entropy_mcmc.data:download", "is defined in entropy_mcmc.data.download"),
        ("entropy_mcmc.data.download:download", "would download"),
        ("torch.hub:load", "would download"),
    ],
)
def test_what_is_never_called_even_when_trusted(place, name, message):
    (place / "mine.py").write_text("from os import system\nfrom pathlib import Path\n")
    with pytest.raises(ConfigError, match=message):
        import_function(name)
    sys.modules.pop("mine", None)


def test_never_holds_with_trust(place, capsys):
    rename(place / "received", name="os:system")
    assert main([*COMMANDS["report"], "--trust"]) == 1
    assert "Python's own library" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "data: {options: {x: {class_path: poison.Thing}}}",
        "model: {class_path: poison.Thing}",
        "config: other.yaml",
        "data: other.yaml",
        "data: {name: !!python/object/apply:os.system ['touch mark']}",
    ],
)
def test_configs_that_would_load_something(place, capsys, text):
    (place / "other.yaml").write_text("name: poison:load\nmethod: sgld\n")
    (place / "mine.yaml").write_text(text)
    assert main(["sample", "--config", "mine.yaml", "--run_dir", "new"]) == 1
    assert "mine.yaml" in capsys.readouterr().err or text.startswith(("config", "data: o"))
    assert "poison" not in sys.modules
    assert not (place / "mark").exists()
    assert not (place / "new").exists()


def test_options_on_the_command_line_import_nothing(place):
    with pytest.raises(SystemExit):
        main(["sample", "--data.options", "{x: {class_path: poison.Thing}}", "--run_dir", "new"])
    assert "poison" not in sys.modules


def test_config_may_not_be_a_pipe_or_a_bomb(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedFileError, match="no regular file"):
        read_config(tmp_path / "pipe")
    (tmp_path / "bomb").write_text("a: &a [x, x]\nb: [*a, *a]\n")
    with pytest.raises(DamagedFileError, match="no aliases"):
        read_config(tmp_path / "bomb")
    (tmp_path / "deep").write_text("[" * 5000)
    with pytest.raises(DamagedFileError, match="deep is no config"):
        read_config(tmp_path / "deep")
    assert parse("a: 1e-3\nb: '1e-3'\nc: 2020-01-01") == {"a": 1e-3, "b": "1e-3", "c": "2020-01-01"}


def test_load_run_in_python_asks_too(place):
    rename(place / "received")
    with pytest.raises(UntrustedError, match="pass trust="):
        load_run("received")
    assert not (place / "mark").exists()
    load_run("received", trust=Trust(names=frozenset({"poison:load"})))
    assert (place / "mark").exists()


def test_posterior_open_reads_no_config(place):
    path = place / "received" / "config.yaml"
    path.write_text("!!python/object/apply:os.system ['touch mark']")
    posterior = Posterior.open(place / "received", tiny_model())
    assert len(posterior) > 0
    posterior.predict_proba(np.zeros((2, 4), dtype=np.float32))
    path.unlink()
    assert not (place / "mark").exists()
    assert len(Posterior.open(place / "received", tiny_model())) == len(posterior)


def test_python_m_does_not_search_the_working_folder(tmp_path):
    import subprocess

    (tmp_path / "jsonargparse.py").write_text("open('mark', 'w').close()\nraise SystemExit(7)\n")
    done = subprocess.run(
        [sys.executable, "-m", "entropy_mcmc", "--version"], cwd=tmp_path, check=False
    )
    assert (done.returncode, (tmp_path / "mark").exists()) == (0, False)
