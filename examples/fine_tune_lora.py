"""Hugging Face: a transformer is fine-tuned by the Trainer, and only its LoRA adapters are sampled.

To run without any download, the "pretrained" model is made here: a small BERT, built from a config,
learns the digits 0 to 4 as sequences of 16 grey levels. Then its backbone is frozen, and adapters
with a new head are sampled on the digits 5 to 9. The backbone is stored once, not per sample.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from entropy_mcmc import EntropyMCMC, metrics, recipes
from entropy_mcmc.integrations.transformers import CollectSamples


class Pixels(Dataset):
    """Images as token sequences: 17 grey levels are the vocabulary. Items are dicts."""

    def __init__(self, tokens: Tensor, labels: Tensor) -> None:
        self.tokens, self.labels = tokens, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def pretrained(steps: int) -> BertForSequenceClassification:
    """A small BERT that knows the digits 0 to 4: stands for a model from the hub."""
    config = BertConfig(
        vocab_size=17,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=5,
    )
    model = BertForSequenceClassification(config)
    tokens, labels = digits(range(5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = torch.randint(len(tokens), (32,))
        loss = F.cross_entropy(model(input_ids=tokens[rows]).logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.classifier = nn.Linear(config.hidden_size, 5)  # a new head for the new task
    return model


def digits(which: range) -> tuple[Tensor, Tensor]:
    """Tokens and labels, counted from 0, of some of scikit-learn's digits."""
    images, labels = load_digits(return_X_y=True)
    chosen = (labels >= which.start) & (labels < which.stop)
    blocks = images[chosen].reshape(-1, 4, 2, 4, 2).mean((2, 4))  # 8x8 pixels to 4x4
    tokens = torch.tensor(blocks.reshape(-1, 16).round()).long()
    return tokens, torch.tensor(labels[chosen] - which.start)


def arguments(folder: str, epochs: int) -> TrainingArguments:
    """Plain training with clipped gradients; the sampler sets its own learning rate."""
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Pretrain, attach adapters, let the Trainer sample them, predict with the average."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrain", type=int, default=400, help="steps of the backbone")
    parser.add_argument("--epochs", type=int, default=40, help="passes of the fine-tuning")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    model = get_peft_model(
        pretrained(options.pretrain),
        LoraConfig(r=8, target_modules=["query", "value", "dense"], modules_to_save=["classifier"]),
    )
    model.print_trainable_parameters()
    tokens, labels = digits(range(5, 10))
    order = torch.randperm(len(labels))
    tokens, labels = tokens[order], labels[order]
    train, test = slice(0, 600), slice(600, None)

    adapters = nn.ParameterList(p for p in model.parameters() if p.requires_grad)  # and the head
    recipe = recipes.adapters(adapters, num_data=600, batch_size=32, passes=options.epochs)
    print(recipe)
    sampler = EntropyMCMC(adapters, **recipe.sampler_options(), seed=0)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        collect = CollectSamples(sampler, run, roles=recipe.roles, **recipe.cycle_options())
        Trainer(
            model=model,
            args=arguments(folder, options.epochs),
            train_dataset=Pixels(tokens[train], labels[train]),
            optimizers=(sampler, None),
            callbacks=[collect],
        ).train()
        posterior = collect.posterior
        sizes = {path.name: path.stat().st_size for path in (run / "samples").glob("*.safetensors")}
        each = posterior.sample_predictions({"input_ids": tokens[test]}, roles="theta")
        single = metrics.summary(each[-1], labels[test])
        average = metrics.summary(
            posterior.predict_proba({"input_ids": tokens[test]}), labels[test]
        )
        print(posterior)
    backbone = [size for name, size in sizes.items() if name.startswith("shared")]
    samples = [size for name, size in sizes.items() if not name.startswith("shared")]
    print(f"backbone {sum(backbone):,} bytes, once; each sample {max(samples):,} bytes")
    for name, scores in (("last θ alone", single), ("average of samples", average)):
        shown = ", ".join(f"{m} {scores[m]:.4f}" for m in ("accuracy", "nll", "ece"))
        print(f"{name:20}{shown}")
    counts = {"backbones": len(backbone), "samples": len(samples)}
    return {**counts, "baseline nll": single["nll"], **average}


if __name__ == "__main__":
    main()
