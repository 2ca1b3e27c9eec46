"""The run engine: one config, exact resume, devices; `sample` is the way in."""

from entropy_mcmc.run.config import RunConfig

__all__ = ["RunConfig", "sample"]


def __getattr__(name: str) -> object:
    # Lazy, so that the command line can read the config without loading torch.
    if name == "sample":
        from entropy_mcmc.run.python_api import sample

        return sample
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
