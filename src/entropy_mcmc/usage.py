"""Short help of `emcmc`: plain text, answered without torch."""

from __future__ import annotations

TOP = """\
usage: emcmc COMMAND …

Sample neural networks from flat basins.

  sample      sample a posterior, or go on with a run
  evaluate    metrics of a run, also on other and corrupted data
  predict     predict the rows of a file
  flatness    how flat the loss is around samples
  report      one page with everything about one or several runs
  reproduce   tables and figures of the paper; needs a clone of the repository

example: emcmc sample                     (embedded data, about a minute)
help:    emcmc COMMAND --help             short, with an example
         emcmc COMMAND --help-all         every option with its default
also:    emcmc --version, emcmc --completion bash | zsh | fish
"""

COMMANDS = {
    "sample": """\
usage: emcmc sample [options]

Sample a posterior. Without options: embedded digits, beside one SGD network of the same budget.
Killed at any moment, the same command goes on and gives the same samples.

  --data.name NAME           digits, cifar10, uci-yacht, … or module:function
  --model.name NAME          mlp, cnn, resnet18, … or module:function
  --method NAME              emcmc, sgld, sghmc, entropy-sgld, bsam, sgd, sam, swa, ensemble, …
  --schedule.epochs N        gradient budget, in passes over the data
  --sampler.lr X             likewise --sampler.eta, .temperature, .weight_decay
  --run_dir FOLDER           where everything is kept
  --config FILE              options from YAML; --print_config writes them
  --more-cycles K            extend a finished run

example: emcmc sample --data.name cifar10 --model.name resnet18 --schedule.epochs 200
every option with its default: emcmc sample --help-all
""",
    "evaluate": """\
usage: emcmc evaluate RUN [options]

Accuracy, NLL and calibration on the test set, detection of out-of-distribution data, and the
same on corrupted pictures. Prints a table; all numbers go to RUN/metrics.jsonl.

  --corruptions [TYPES]      [all], [none], or names such as [fog,snow]
  --device NAME              where to predict
  --trust                    import the module:function names of the folder, which are refused else

example: emcmc evaluate runs/digits-emcmc --corruptions [none]
every option with its default: emcmc evaluate --help-all
""",
    "predict": """\
usage: emcmc predict RUN INPUT -o OUTPUT [options]

Class probabilities, entropy and mutual information; for regression mean and standard deviation.
INPUT and OUTPUT are .npz or .csv files.

  --batch_size N             rows at a time
  --trust                    import the module:function names of the folder, which are refused else

example: emcmc predict runs/digits-emcmc new.npz -o probabilities.csv
every option with its default: emcmc predict --help-all
""",
    "flatness": """\
usage: emcmc flatness RUN [RUN …] [options]

Fisher information, Hessian, sharpness and interpolation at the last θ and guide of each run, in
one table and figures.

  --subset N                 training rows for all but the Fisher information
  --surface                  also draw the loss on a plane through three samples
  -o FOLDER                  where to write; RUN/flatness by default
  --trust                    import the module:function names of the folder, which are refused else

example: emcmc flatness runs/digits-emcmc runs/digits-sgld
every option with its default: emcmc flatness --help-all
""",
}


def short_help(arguments: list[str]) -> str | None:
    """The text for `--help`; None if these arguments do not ask for it.

    >>> short_help(["predict", "--help"]).startswith("usage: emcmc predict")
    True
    """
    if not any(word in ("-h", "--help") for word in arguments):
        return None
    if arguments[0] in ("-h", "--help"):
        return TOP
    return COMMANDS.get(arguments[0])
