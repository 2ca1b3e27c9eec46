"""Watching a run: TensorBoard events, plain lines, the bar."""

import contextlib
import fcntl
import os
import struct
import sys
import termios
from dataclasses import replace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run import progress
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.runner import run
from run.workers import tiny_config

EVENT = {"loss": 0.25, "lr": 0.125, "temperature": 1.0, "cycle": 0, "samples": 2}


def scalars(folder, name):
    """What TensorBoard would draw, as pairs (step, value)."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_event_files_hold_the_numbers_of_the_journal(tmp_path):
    config = with_parts(tiny_config(tmp_path, epochs=8), output={"tensorboard": True})
    run(replace(config, chains=2))
    lines = [e for e in Journal(tmp_path).events() if e["kind"] == "train"]
    for chain in range(2):
        mine = [e for e in lines if e["chain"] == chain]
        assert len(mine) > 3
        for name in ("loss", "lr", "temperature", "cycle", "samples"):
            values = scalars(tmp_path / "tensorboard" / f"chain-{chain}", name)
            assert [step for step, _ in values] == [e["step"] for e in mine]
            # Event files hold float32.
            assert [value for _, value in values] == pytest.approx(
                [e[name] for e in mine], rel=1e-6
            )


def test_steps_that_are_made_again_replace_the_first_ones(tmp_path):
    for start, stop, loss in ((0, 10, 1.0), (6, 12, 2.0)):
        board = progress.TensorBoard(progress.Quiet(), tmp_path, start)
        for step in range(start + 1, stop + 1):
            board.advance()
            board.show({**EVENT, "step": step, "loss": loss})
        board.close()
    assert scalars(tmp_path, "loss") == [(step, 1.0 if step <= 6 else 2.0) for step in range(1, 13)]


def test_missing_tensorboard_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'entropy-mcmc\[tensorboard\]'"):
        progress.TensorBoard(progress.Quiet(), tmp_path, 0)


def test_lines_without_a_terminal(monkeypatch, capsys):
    clock = iter([0.0, 20.0, 21.0, 60.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    lines = progress.make_progress("emcmc", start=10, total=40, shown=True)
    assert isinstance(lines, progress.Lines)
    for steps in (10, 1, 19):
        for _ in range(steps):
            lines.advance()
        lines.show({**EVENT, "step": lines.step})
    lines.close()
    said = "loss 0.2500, lr 0.125, T 1, cycle 1, 2 samples"
    # 10 steps took 20 s and 20 are left; one second later nothing is printed.
    assert capsys.readouterr().err.splitlines() == [
        f"emcmc step 20/40, {said}, 40 s left",
        f"emcmc step 40/40, {said}, 0 s left",
    ]


def bar_lines(monkeypatch, label, start, total, event):
    """What a terminal of 80 columns shows of a bar, one entry for each time it is drawn."""
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(writer, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        bar = progress.make_progress(label, start=start, total=total, shown=True)
        assert isinstance(bar, progress.Bar)
        bar.show({**EVENT, **event, "step": start + 1})
        for _ in range(total - start):
            bar.advance()
        bar.close()
        screen.flush()
        os.set_blocking(reader, False)
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(reader, 2**16):
                parts.append(part)
    os.close(reader)
    shown = b"".join(parts).decode()
    return [line for line in shown.replace("\n", "\r").split("\r") if line.strip()]


def test_bar_on_a_terminal(monkeypatch):
    last = bar_lines(monkeypatch, "emcmc", 10, 12, {})[-1]
    assert last.startswith("emcmc |")
    assert last.endswith("| 12/12 00:00, loss 0.25, cycle 1, 2 samples")


def test_the_bar_fits_80_columns(monkeypatch):
    """The longest label, six digits of steps and a bad loss: no word is cut off."""
    event = {"loss": 12345.678, "cycle": 19, "samples": 128}
    lines = bar_lines(monkeypatch, "entropy-sgld 2/4", 999_990, 999_999, event)
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].endswith("loss 1.23e+04, cycle 20, 128 samples")


def test_nothing_is_shown_if_not_wanted(capsys):
    quiet = progress.make_progress("emcmc", start=0, total=1, shown=False)
    quiet.advance()
    quiet.show({**EVENT, "step": 1})
    quiet.close()
    assert capsys.readouterr() == ("", "")
