"""What a sampler declares, and what the registry makes of it."""

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import entropy_mcmc
from entropy_mcmc import BSAM, SAM, SGLD, EntropySGD, EntropySGLD
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.report.labels import method_name
from entropy_mcmc.run.config import METHODS, SamplerConfig
from entropy_mcmc.run.methods import METHODS as METHOD_TABLE
from entropy_mcmc.samplers import registry
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters

every = pytest.mark.parametrize("name", registry.SAMPLERS)


def parameter(size=3):
    return torch.nn.Parameter(torch.ones(size))


def test_registry_config_and_help_need_no_torch():
    script = (
        "import sys; from entropy_mcmc.samplers import registry; import entropy_mcmc.run.config;"
        "assert registry.declared()['eta'].help; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@every
def test_hyper_parameters_read_from_the_source_are_those_of_the_class(name):
    declared = registry.declared()
    for own in hyper_parameters(registry.load(name)).values():
        assert declared[own.name].kind == own.kind
        assert own.help, f"{own.name} has no help text"
        assert (own.range is None) == (own.kind is bool), f"{own.name} has no range"


@every
def test_one_line_feeds_exports_runs_and_reports(name):
    entry = registry.SAMPLERS[name]
    sampler = registry.load(name)
    assert getattr(entropy_mcmc, entry.sampler) is sampler
    assert entry.sampler in entropy_mcmc.__all__
    assert name in METHODS
    assert METHOD_TABLE[name].sampler is sampler
    assert method_name(name) == entry.label
    options = {field.name for field in fields(SamplerConfig)}
    assert set(METHOD_TABLE[name].options) <= options
    assert set(sampler.run_defaults) <= set(METHOD_TABLE[name].options)


def test_a_run_knows_of_a_sampler_what_its_class_declares():
    guided = {name for name, method in METHOD_TABLE.items() if method.has_guide}
    posterior = {name for name, method in METHOD_TABLE.items() if method.samples_posterior}
    assert guided == {"emcmc"}
    assert posterior == {"emcmc", "sgld", "psgld", "sghmc"}


# Values by method that were tuned for each, and run folders of an earlier version.
MAY_NAME_SAMPLERS = {"samplers/registry.py", "recipes.py", "run/config_file.py"}


def names_in_branches(source):
    """Strings that are compared with, or that stand in a tuple, list, set or dict."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.Tuple | ast.List | ast.Set | ast.Dict):
            parts = ast.iter_child_nodes(node)
            yield from (part.value for part in parts if isinstance(part, ast.Constant))


def test_no_other_module_branches_on_the_name_of_a_sampler():
    """Else a new sampler would need more than its file and its line."""
    root = Path(entropy_mcmc.__file__).parent
    named = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if set(registry.SAMPLERS) & set(names_in_branches(path.read_text()))
    }
    # The name of the command, not of the sampler.
    assert named - {"tuning/result.py", "run/trust.py", "tuning/search_figure.py"} == (
        MAY_NAME_SAMPLERS
    )


@every
def test_every_default_is_in_its_range(name):
    for declared in hyper_parameters(registry.load(name)).values():
        if isinstance(declared.default, int | float | str):
            declared.check(declared.default)


@pytest.mark.parametrize("kind", [EntropySGD, EntropySGLD])
def test_groups_with_other_inner_steps_are_refused(kind):
    """The gradient of an inner step is taken for all groups at once; group 0 used to decide."""
    options = {"lr": 0.1, "num_data": 10, "eta": 0.1, "inner_steps": 3}
    other = {"params": [parameter()], "inner_steps": 5}
    with pytest.raises(ConfigError, match=r"inner_steps must be the same.*got inner_steps=5"):
        kind([{"params": [parameter()]}, other], **options)
    sampler = kind([{"params": [parameter()]}, {"params": [parameter()]}], **options)
    sampler.param_groups[1]["inner_steps"] = 4
    with pytest.raises(ConfigError, match="inner_steps must be the same"):
        sampler.step(lambda: torch.zeros(()))


def test_no_step_inside_a_draw_of_bsam():
    """It would move a draw, which leaving the block then throws away."""
    param = parameter()
    sampler = BSAM([param], lr=0.1, num_data=10, seed=0)
    param.grad = torch.ones(3)
    with sampler.sampled():
        for call in (sampler.state_dict, lambda: sampler.step(lambda: None)):
            with pytest.raises(StateError, match=r"inside `with sampler.sampled\(\):`"):
                call()
    assert torch.equal(param, torch.ones(3))


def test_the_state_of_another_sampler_is_refused_by_its_hyper_parameters():
    sgld = SGLD([parameter()], lr=0.1, num_data=10, seed=0)
    state = sgld.state_dict()
    state["param_groups"][0] |= {"initial_lr": 0.1, "note": "of a scheduler or a user"}
    sgld.load_state_dict(state)
    state["param_groups"][0]["rho"] = 0.1
    with pytest.raises(ConfigError, match="load it into a sampler of the class that saved it"):
        sgld.load_state_dict(state)


def test_settings_are_a_checked_group():
    group = SAM.settings(lr=0.1, rho=0.2)
    assert group["rho"] == 0.2
    assert "params" not in group
    with pytest.raises(ConfigError, match="rho must be greater than 0"):
        SAM.settings(lr=0.1, rho=-1.0)
