"""What do people see? Figures and pages, drawn from the metrics of runs and from diagnoses."""

from hyperfan.report.canvas import save
from hyperfan.report.curves import evolution, loss_and_accuracy, training_losses
from hyperfan.report.diagnosis_page import diagnosis_page
from hyperfan.report.rates import accuracy_by_rate
from hyperfan.report.ridges import ridges
from hyperfan.report.run_data import RunData
from hyperfan.report.run_page import run_page
from hyperfan.report.scale import scale_chart
from hyperfan.report.setting import Rows, Setting, settings
from hyperfan.report.tasks import Fit, fits, losses_by_task
from hyperfan.report.uncertainty import uncertainty

__all__ = [
    "Fit",
    "Rows",
    "RunData",
    "Setting",
    "accuracy_by_rate",
    "diagnosis_page",
    "evolution",
    "fits",
    "loss_and_accuracy",
    "losses_by_task",
    "ridges",
    "run_page",
    "save",
    "scale_chart",
    "settings",
    "training_losses",
    "uncertainty",
]
