"""scikit-learn estimators: posterior sampling for tabular data, with no tuning.

>>> from sklearn.datasets import load_iris
>>> from entropy_mcmc.sklearn import EntropyMCMCClassifier
>>> x, y = load_iris(return_X_y=True)
>>> EntropyMCMCClassifier(n_steps=100, random_state=0).fit(x, y).predict_proba(x[:2]).shape
(2, 3)
"""

from entropy_mcmc.sklearn.classifier import EntropyMCMCClassifier
from entropy_mcmc.sklearn.regressor import EntropyMCMCRegressor

__all__ = ["EntropyMCMCClassifier", "EntropyMCMCRegressor"]
