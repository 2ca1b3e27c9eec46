"""The command line: help without torch, flags and YAML, exit codes."""

import contextlib
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml

from entropy_mcmc import __version__, usage
from entropy_mcmc.cli import main, make_parser, option_words
from entropy_mcmc.data import load
from entropy_mcmc.run import progress
from entropy_mcmc.run.config import leaves


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_first_help_names_every_command(capsys, arguments):
    text = printed(capsys, *arguments)
    assert len(text.splitlines()) < 25
    for command in ("sample", "tune", "evaluate", "predict", "flatness", "report", "reproduce"):
        assert f"\n  {command} " in text
    assert "example: emcmc" in text


@pytest.mark.parametrize(
    "command", ["sample", "tune", "evaluate", "predict", "flatness", "report", "reproduce"]
)
def test_help_of_a_command_is_short_and_has_an_example(capsys, command):
    with contextlib.suppress(SystemExit):  # argparse ends the process after its help
        main([command, "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 32
    assert f"example: emcmc {command}" in " ".join(text.split())


@pytest.mark.parametrize("command", list(usage.COMMANDS))
def test_the_short_help_has_the_words_of_the_parser(capsys, command):
    text = " ".join(printed(capsys, command, "--help").split())
    for flag, value in usage.COMMANDS[command].options:
        words = option_words(command)[flag]
        assert words, flag
        assert f"{flag} {value} {words}".replace("  ", " ") in text


def test_the_short_help_has_replicas_and_the_learning_coefficient(capsys):
    assert "--replicas Y" in printed(capsys, "sample", "--help")
    text = " ".join(printed(capsys, "flatness", "--help").split())
    assert "--learning_steps N" in text
    assert "loss, Fisher and learning coefficient use all" in text


def test_help_all_lists_every_option_with_its_default(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["sample", "--help-all"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    for name, *_ in leaves():
        assert f"--{name} " in text
    assert "default: 0.01" in " ".join(text.split())  # schedule.final


def test_version(capsys):
    assert printed(capsys, "--version") == f"emcmc {__version__}\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_completion_in_bash(capsys):
    script = printed(capsys, "--completion", "bash")
    asked = "COMP_WORDS=(emcmc sample --sampler.l); COMP_CWORD=2; _shtab_emcmc; "
    asked += 'echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", script + asked], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["--sampler.lr"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_in_other_shells_knows_the_options(capsys, shell):
    assert "sampler.lr" in printed(capsys, "--completion", shell)


def test_completion_names_the_shells(capsys):
    with pytest.raises(SystemExit, match="bash, zsh or fish, got 'tcsh'"):
        main(["--completion", "tcsh"])


@pytest.mark.parametrize("arguments", [["--help"], ["sample", "--help"], ["tune", "--help"]])
def test_modules_of_the_help_do_not_need_torch(arguments):
    code = f"""
import sys
from entropy_mcmc.cli import main
before = "torch" in sys.modules
try:
    main({arguments})
except SystemExit:
    pass
assert ("torch" in sys.modules) == before, "the help loads torch"
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_print_config_is_a_config(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["sample", "--method", "sgld", "--sampler.lr", "0.3", "--print_config"])
    path = tmp_path / "config.yaml"
    path.write_text(capsys.readouterr().out)
    parsed = make_parser().parse_args(["sample", "--config", str(path), "--seed", "5"])
    assert (parsed.sample.method, parsed.sample.sampler.lr, parsed.sample.seed) == ("sgld", 0.3, 5)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["sample", "--sampler.lr", "fast"], 2), (["sample", "--no_such_option", "1"], 2), (["x"], 2)],
)
def test_wrong_arguments_exit_with_two(arguments, code, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == code
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sample --sampler.lr fast", "sampler.lr must be a number or null, got sampler.lr='fast'"),
        ("sample --schedule.epochs 1.5", "schedule.epochs must be a whole number, got"),
        ("sample --output.progress maybe", "output.progress must be true or false"),
        ("sample --data.ood 3", "data.ood must be a list of names such as [mnist, kmnist]"),
        ("sample --model.options 3", "model.options must be a table such as {limit: 100}"),
        ("sample --sampler.lrr 1", "no option --sampler.lrr (did you mean '--sampler.lr'?)"),
        ("sample --lr=1", "no option --lr (did you mean '--sampler.lr'?)"),
        ("sample --learning-rate 1", "(did you mean '--sampler.lr'?)"),
        ("sample --dataset x", "(did you mean '--data.name'?)"),
        ("sample --zzz x", "no option --zzz; emcmc sample --help-all lists them"),
        ("sample --seed", "--seed needs a value"),
        ("sample mine.csv", "does not know what to do with 'mine.csv'"),
        ("tune --trails 3", "(did you mean '--trials'?)"),
        ("flatness run --subset x", "subset must be a whole number"),
        ("evaluate", "emcmc evaluate needs RUN"),
        ("predict run", "emcmc predict needs INPUT and --output"),
        ("sampel", "no command 'sampel' (did you mean 'sample'?)"),
    ],
)
def test_wrong_options_are_told_in_our_words(line, words, capsys):
    with pytest.raises(SystemExit):
        main(line.split())
    text = capsys.readouterr().err
    assert words in text
    assert len(text.splitlines()) == 1
    assert not any(word in text for word in ("Union", "class '", "Parser key"))


def test_likely_names_of_methods_and_models(capsys):
    assert main(["sample", "--method", "entropy_sgdl"]) == 1
    assert "(did you mean 'entropy-sgld'?)" in capsys.readouterr().err
    assert main(["sample", "--model.name", "rasnet8"]) == 1
    assert "(did you mean 'resnet8'?)" in capsys.readouterr().err


def test_unknown_method_is_one_message(capsys):
    assert main(["sample", "--method", "adam"]) == 1
    assert "method must be one of 'emcmc'" in capsys.readouterr().err


def test_no_run_folder_is_one_message(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path)]) == 1
    assert "is no run folder" in capsys.readouterr().err


def test_sample_evaluate_predict(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--schedule.epochs", "12", "--output.progress", "false", "--compute.threads", "1"]
    text = printed(capsys, "sample", *flags)
    # The posterior and the single network of the same budget, with what was asked for.
    for word in ("emcmc", "sgd", "accuracy", "nll", "ece", "auroc", "ood:shuffled"):
        assert word in text
    assert printed(capsys, "sample", *flags) == text
    folder = tmp_path / "runs" / "digits-emcmc"
    written = yaml.safe_load((folder / "config.yaml").read_text())
    assert written["record"]["machine"]["threads"] >= 1
    assert written["schedule"]["cycles"] == 1
    assert written["sampler"]["prior_variance"] == 0.146

    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert main(["evaluate", str(folder), "--corruptions", "[fog]"]) == 0
    out, told = capsys.readouterr()
    assert "corrupted:mean:5" in out
    for who in ("emcmc", "sgd"):  # a line for each of 5 severities, not among the scores
        line = rf"^{who} corrupted set (\d)/5, fog:(\d), NLL [\d.]+, \d+ s left$"
        assert re.findall(line, told, re.MULTILINE) == [(k, k) for k in "12345"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    named = {line["set"] for line in lines if line["kind"] == "evaluate"}
    assert {"test", "ood:shuffled", "corrupted:fog:1", "corrupted:mean:3"} <= named

    test = load("digits", split="test").take(20)
    np.savetxt("in.csv", test.inputs.flatten(1).numpy(), fmt="%d", delimiter=",")
    printed(capsys, "predict", str(folder), "in.csv", "-o", "out.csv")
    out = np.genfromtxt("out.csv", delimiter=",", names=True)
    assert out.dtype.names[:2] == ("class", "p0")
    assert (out["class"] == test.targets.numpy()).mean() > 0.7
    assert main(["predict", str(folder), "in.txt", "-o", "out.csv"]) == 1


def test_written_config_starts_the_same_run_again(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--method", "sgd", "--schedule.epochs", "2", "--output.progress", "false"]
    flags += ["--compute.threads", "1"]
    first = printed(capsys, "sample", "--run_dir", "a", *flags)
    again = printed(capsys, "sample", "--config", "a/config.yaml", "--run_dir", "b")
    assert first.replace("in a", "in b").replace("a/report", "b/report") == again
