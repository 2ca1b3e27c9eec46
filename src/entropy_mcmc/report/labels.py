"""Plain words for names: methods, options, metrics, classes."""

from __future__ import annotations

from entropy_mcmc.run.config import METHOD_LABELS

# (option, words, unit or meaning)
SETTINGS = (
    ("method", "Method", "how weights are moved and sampled"),
    ("data.name", "Data", "the data set"),
    ("model.name", "Model", "“auto” is chosen to fit the data"),
    ("schedule.epochs", "Epochs", "passes over the training data per chain"),
    ("schedule.cycles", "Cycles", "restarts of the learning rate"),
    ("schedule.warm_up", "Warm-up", "share of the first cycle in which the learning rate rises"),
    ("schedule.burn_in", "Burn-in", "share of each cycle without noise and samples"),
    (
        "schedule.samples_per_cycle",
        "Samples per cycle",
        "how often networks are kept in each cycle",
    ),
    ("chains", "Chains", "independent starts"),
    ("replicas", "Replicas", "networks of a chain that share a guide, each with its own batches"),
    ("data.batch_size", "Batch size", "training rows per gradient"),
    ("sampler.lr", "Learning rate", "at the start of a cycle, for the mean loss"),
    ("sampler.temperature", "Temperature T", "1 is the Bayes posterior, below 1 is colder"),
    ("sampler.eta", "Coupling η", "variance of θ_a around θ at T = 1; smaller ties tighter"),
    ("sampler.weight_decay", "Weight decay λ", "the prior is N(0, 1/(λN))"),
    ("sampler.prior_variance", "Prior variance", "of each weight, instead of the weight decay"),
    ("sampler.bias_variance", "Prior variance of biases", "infinite is no prior"),
    ("sampler.norm_variance", "Prior variance of norm layers", "infinite is no prior"),
    ("sampler.momentum", "Momentum", "0 is none"),
    ("seed", "Seed", "fixes weights, batches and noise"),
)
# name → (short, better, meaning)
METRICS = {
    "accuracy": (
        "Accuracy",
        "higher",
        "Share of test rows whose most probable class is the true one.",
    ),
    "nll": (
        "NLL",
        "lower",
        "Negative log-likelihood in nats per row: the mean of −log(probability of the truth). "
        "Punishes confident mistakes hard.",
    ),
    "ece": (
        "ECE",
        "lower",
        "Expected calibration error: how far stated confidence is from the share that is right, "
        "0 (honest) to 1.",
    ),
    "brier": ("Brier", "lower", "Squared distance of the probabilities from the truth, 0 to 2."),
    "misclassification_auroc": (
        "Error AUROC",
        "higher",
        "Probability that a right prediction is more confident than a wrong one; 0.5 is chance.",
    ),
    "rmse": ("RMSE", "lower", "Root mean squared error, in the units of the target."),
    "coverage": (
        "95 % coverage",
        "near 95 %",
        "Share of true values inside the predicted 95 % interval; 95 % is right.",
    ),
    "auroc": (
        "AUROC",
        "higher",
        "Probability that an OOD input has a higher entropy than a known one; 0.5 is chance.",
    ),
    "fpr95": (
        "FPR95",
        "lower",
        "Share of known inputs that raise a false alarm when 95 % of OOD ones are caught.",
    ),
    "aupr": ("AUPR", "higher", "Area under the precision–recall curve, OOD inputs positive."),
}
SHARES = ("accuracy", "coverage", "fpr95")
GLOSSARY = (
    (
        "Posterior",
        "the distribution of the network's weights given data and prior. It is shown by samples: "
        "networks that all fit the data and differ where the data do not decide.",
    ),
    (
        "θ and θ_a",
        "the two coupled copies of the weights in Entropy-MCMC: θ follows the data, the "
        "guide θ_a follows θ and smooths its path. Other methods have θ only.",
    ),
    (
        "Replicas",
        "several θ of one chain, each with mini-batches of its own, that share one guide θ_a. They "
        "are alike, but not independent.",
    ),
    ("Whole posterior", "the mean of the probabilities of all samples that were kept."),
    (
        "Cycle and burn-in",
        "the learning rate falls from its start to nearly 0 in every cycle. In "
        "the first part (burn-in) the chain only learns; then it adds noise and keeps samples.",
    ),
    ("Entropy", "how spread a prediction is, in nats: 0 is certain, log(classes) is no idea."),
    (
        "Out of distribution",
        "inputs that are nothing like the training data. A good model is unsure of them.",
    ),
    (
        "ROC curve",
        "for every alarm threshold, the share of OOD inputs caught against the share "
        "of known inputs that raise a false alarm. Up and to the left is better.",
    ),
    (
        "Effectively different networks",
        "how many independent networks the average is worth: copies of one count once. It "
        "compares the predictions of samples within a chain with those of different chains.",
    ),
    ("Effective sample size", "how many independent samples would be worth as much as these."),
    (
        "R-hat",
        "compares the spread between chains, cycles or halves with that within them; near 1 they "
        "agree.",
    ),
    ("Standard error (±)", "by how much a number would vary with another test set of this size."),
)
CLASSES = {
    "fashion-mnist": (
        *("T-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "boot"),
    ),
    "cifar10": (
        *("airplane", "car", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    "notmnist": tuple("ABCDEFGHIJ"),
}
OOD_NAMES = {"shuffled": "shuffled pixels"}


def class_name(data: str, label: int) -> str:
    """A class in words, its number where it has none.

    >>> class_name("cifar10", 3), class_name("digits", 3)
    ('cat', '3')
    """
    names = CLASSES.get(data.removesuffix("-c"), ())
    return names[label] if 0 <= label < len(names) else str(label)


def method_name(method: str) -> str:
    """A method in words."""
    return METHOD_LABELS.get(method, method)


def arrow(name: str) -> str:
    """A metric's short name with the direction that is better.

    >>> arrow("nll")
    'NLL ↓'
    """
    short, better, _ = METRICS[name]
    return short + {"higher": " ↑", "lower": " ↓"}.get(better, "")
