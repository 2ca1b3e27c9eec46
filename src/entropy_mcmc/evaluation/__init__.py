"""Predictions of a run's samples, made once, and the scores that are computed from them, once."""

from entropy_mcmc.evaluation.predictions import (
    KeptSamples,
    Predictions,
    SetPredictions,
    average_over_samples,
    predict_set,
)
from entropy_mcmc.evaluation.scores import calibration_bins, detection_scores, prediction_scores
from entropy_mcmc.evaluation.sets import EvaluationSet, evaluation_sets

__all__ = [
    "EvaluationSet",
    "KeptSamples",
    "Predictions",
    "SetPredictions",
    "average_over_samples",
    "calibration_bins",
    "detection_scores",
    "evaluation_sets",
    "predict_set",
    "prediction_scores",
]
