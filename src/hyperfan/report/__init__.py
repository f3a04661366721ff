"""What do people see? Figures and pages, drawn from the metrics of runs and from diagnoses."""

from hyperfan.charts.scale import scale_chart
from hyperfan.report.coordinate_page import coordinate_page
from hyperfan.report.diagnosis_page import diagnosis_page
from hyperfan.report.inside import evolution, ridges
from hyperfan.report.losses import accuracy_by_rate, loss_and_accuracy, losses_and_accuracies, training_losses
from hyperfan.report.paths import Drawn, paths
from hyperfan.report.run_data import RunData, Section, Setting, settings
from hyperfan.report.run_page import run_page
from hyperfan.report.shares import losses_by_share
from hyperfan.report.starts import StartScores, losses_and_scores
from hyperfan.report.tasks import Fit, fits, losses_by_task, quartiles, task_panels
from hyperfan.report.uncertainty import uncertainty, uncertainty_panels

__all__ = [
    "Drawn",
    "Fit",
    "RunData",
    "Section",
    "Setting",
    "StartScores",
    "accuracy_by_rate",
    "coordinate_page",
    "diagnosis_page",
    "evolution",
    "fits",
    "loss_and_accuracy",
    "losses_and_accuracies",
    "losses_and_scores",
    "losses_by_share",
    "losses_by_task",
    "paths",
    "quartiles",
    "ridges",
    "run_page",
    "scale_chart",
    "settings",
    "task_panels",
    "training_losses",
    "uncertainty",
    "uncertainty_panels",
]
