"""The exit codes of a run's process, of which commands use those of runs that were stopped."""

from hyperfan.metrics import Outcome

FAILED, IN_USE = "failed", "in use"
"""Outcomes of a run that ended with an error, of which it says why, and of one that another process is running."""
EXIT_CODES: dict[str, int] = {
    Outcome.FINISHED: 0,
    Outcome.DIVERGED: 64,
    FAILED: 70,
    IN_USE: 75,
    Outcome.STOPPED: 130,  # 128 and the number of Ctrl-C's signal
    Outcome.TERMINATED: 143,  # 128 and that of SIGTERM
}
OUTCOMES = {code: outcome for outcome, code in EXIT_CODES.items()}
"""The outcome that the exit code of a run's process stands for; any other code says that the process died."""
