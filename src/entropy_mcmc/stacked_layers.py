"""Forward passes of K networks of one architecture, where all layers are known: batched products.

A network that is a chain of linear layers, batch norm, dropout and activations needs no
`torch.func.vmap`: a linear layer of K networks is one `torch.baddbmm`. The results are those of
`vmap` bit for bit, but for the rounding of batch norm's gradients, in a fraction of its calls.
Layers are known by their exact class; with a hook, a forward of its own or a tied weight a network
is not known, and goes the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

ACTIVATIONS = (
    nn.ReLU,
    nn.Tanh,
    nn.SiLU,
    nn.GELU,
    nn.Sigmoid,
    nn.ELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Identity,
)
State = Mapping[str, Tensor]


class Layer(NamedTuple):
    """A layer of K networks: (layer, inputs (K, rows, …), stacked tensors by name) → outputs."""

    apply: Callable[[Layer, Tensor, State], Tensor]
    module: nn.Module
    prefix: str
    training: bool
    own: bool = False  # whether its inputs are a layer's outputs, which nobody else reads

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Names in the network and tensors of the layer."""
        for held in (self.module._parameters, self.module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    yield self.prefix + name, tensor


def known_layers(model: nn.Module, *, training: bool | None = None) -> list[Layer] | None:
    """The layers of a network in their order, or None where one of them is not known.

    Args:
        model: The network; nothing of it is called.
        training: The mode of all layers; None for the mode of each.
    """
    layers: list[Layer] = []
    try:
        _visit(model, "", training, layers)
    except _Unknown:
        return None
    return None if _has_global_hooks() else layers


def takes(layers: list[Layer], inputs: Any) -> bool:
    """Whether the layers can be given these inputs (K, rows, …)."""
    if not isinstance(inputs, Tensor) or not layers:
        return False
    return inputs.dim() == 3 or (layers[0].apply is _flatten and inputs.dim() > 3)


def has_all(state: State, layers: list[Layer]) -> bool:
    """Whether all tensors of the layers are in `state`; of tied ones only one name is."""
    return all(name in state for layer in layers for name, _ in layer.tensors())


def run(layers: list[Layer], inputs: Tensor, state: State) -> Tensor:
    """Outputs (K, rows, …) of K networks whose tensors, with a leading K, are in `state`."""
    for layer in layers:
        inputs = layer.apply(layer, inputs, state)
    return inputs


class _Unknown(Exception):
    """A module that is none of the known ones."""


def _visit(module: nn.Module, prefix: str, training: bool | None, layers: list[Layer]) -> None:
    kind = type(module)
    special = "forward" in vars(module) or getattr(module, "_compiled_call_impl", None) is not None
    hooks = module._forward_hooks or module._forward_pre_hooks
    if special or hooks or module._backward_hooks or module._backward_pre_hooks:
        raise _Unknown
    if kind is nn.Sequential:
        for name, child in module._modules.items():
            if child is None:
                raise _Unknown
            _visit(child, f"{prefix}{name}.", training, layers)
        return
    mode = module.training if training is None else training
    inner = vars(kind).get("layers_after_flatten")
    if inner is not None:
        layers.append(Layer(_flatten, module, f"{prefix}:", mode))
        _visit(getattr(module, inner), f"{prefix}{inner}.", training, layers)
        return
    apply = _KNOWN.get(kind)
    if apply is None or not _is_known(module, mode, first=not layers):
        raise _Unknown
    own = bool(layers) and layers[-1].apply in (_linear, _batch_norm)
    layers.append(Layer(apply, module, prefix, mode, own))


def _is_known(module: Any, training: bool, *, first: bool) -> bool:
    if isinstance(module, nn.Dropout):
        return not (training and module.p > 0)
    if isinstance(module, nn.BatchNorm1d):
        return module.momentum is not None
    if isinstance(module, nn.Flatten):
        return bool(module.start_dim == 1 and module.end_dim == -1 and first)
    return not (first and getattr(module, "inplace", False))  # it would change the user's inputs


def _has_global_hooks() -> bool:
    names = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
             "_global_backward_pre_hooks")  # fmt: skip
    return any(getattr(torch_module, name, None) for name in names)


def _linear(layer: Layer, x: Tensor, state: State) -> Tensor:
    weight, bias = state[f"{layer.prefix}weight"], state.get(f"{layer.prefix}bias")
    if x.shape[0] == 1:
        return F.linear(x[0], weight[0], None if bias is None else bias[0])[None]
    if bias is None:
        return torch.bmm(x, weight.transpose(1, 2))
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _batch_norm(layer: Layer, x: Tensor, state: State) -> Tensor:
    """All networks in one call, as columns of their own; running statistics move in place."""
    module: Any = layer.module
    networks, rows, columns = x.shape
    tensors = {name: state.get(f"{layer.prefix}{name}") for name in _OF_BATCH_NORM}
    counted = tensors.pop("num_batches_tracked")
    tracks = module.track_running_stats or not layer.training
    if layer.training and module.track_running_stats and counted is not None:
        counted.add_(1)
    flat = {name: None if t is None else t.reshape(-1) for name, t in tensors.items()}
    wide = x.transpose(0, 1).reshape(rows, networks * columns)
    out = F.batch_norm(
        wide,
        flat["running_mean"] if tracks else None,
        flat["running_var"] if tracks else None,
        flat["weight"],
        flat["bias"],
        layer.training or flat["running_mean"] is None,
        module.momentum,
        module.eps,
    )
    return out.view(rows, networks, columns).transpose(0, 1)


def _relu(layer: Layer, x: Tensor, state: State) -> Tensor:
    return x.relu_() if layer.own and not torch.is_grad_enabled() else x.relu()


def _activation(layer: Layer, x: Tensor, state: State) -> Tensor:
    out: Tensor = layer.module.forward(x)
    return out


def _flatten(layer: Layer, x: Tensor, state: State) -> Tensor:
    return x.flatten(2)


def _same(layer: Layer, x: Tensor, state: State) -> Tensor:
    return x


_OF_BATCH_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_KNOWN: dict[type[nn.Module], Callable[[Layer, Tensor, State], Tensor]] = {
    nn.Linear: _linear,
    nn.BatchNorm1d: _batch_norm,
    nn.Dropout: _same,
    nn.Flatten: _flatten,
    **dict.fromkeys(ACTIVATIONS, _activation),
    nn.ReLU: _relu,
}
