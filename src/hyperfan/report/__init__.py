"""What do people see? Figures drawn from the metrics of runs."""

from hyperfan.report.canvas import save
from hyperfan.report.curves import evolution, loss_and_accuracy, training_losses
from hyperfan.report.page import page
from hyperfan.report.rates import accuracy_by_rate
from hyperfan.report.ridges import ridges
from hyperfan.report.setting import Rows, Setting, settings
from hyperfan.report.tasks import Fit, fits, losses_by_task
from hyperfan.report.uncertainty import uncertainty

__all__ = [
    "Fit",
    "Rows",
    "Setting",
    "accuracy_by_rate",
    "evolution",
    "fits",
    "loss_and_accuracy",
    "losses_by_task",
    "page",
    "ridges",
    "save",
    "settings",
    "training_losses",
    "uncertainty",
]
