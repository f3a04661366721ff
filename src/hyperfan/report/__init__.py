"""What do people see? Figures drawn from the metrics of runs."""

from hyperfan.report.canvas import save
from hyperfan.report.curves import evolution, loss_and_accuracy
from hyperfan.report.page import page
from hyperfan.report.ridges import ridges
from hyperfan.report.setting import Rows, Setting, settings

__all__ = ["Rows", "Setting", "evolution", "loss_and_accuracy", "page", "ridges", "save", "settings"]
