"""Tuning: a search over lr, prior variance, T and the like on the user's own problem."""

from entropy_mcmc.tuning.options import TuneConfig

__all__ = ["TuneConfig", "Tuned", "tune"]


def __getattr__(name: str) -> object:
    # Lazy, so that the command line can read the options without loading torch.
    if name in ("Tuned", "tune"):
        from entropy_mcmc.tuning import python_api, result

        return {"Tuned": result.Tuned, "tune": python_api.tune}[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
