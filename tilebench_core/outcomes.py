"""What can become of a trial: every planned trial ends in exactly one of these."""

from __future__ import annotations

from enum import Enum

__all__ = ["Outcome"]


class Outcome(str, Enum):
    """The end of one trial, with a sentence that explains it to a user."""

    PASSED = "PASSED", "Verified against the reference; it was timed if the device can be timed."
    SUSPICIOUS = (
        "SUSPICIOUS",
        "Verified, but its time is not physically plausible, for instance above a measured ceiling.",
    )
    WRONG = "WRONG", "A check of its outputs failed; the reason names the check, with expected and actual."
    INVALID_REFERENCE = "INVALID_REFERENCE", "The reference itself failed or is not finite where it must be."
    UNSUPPORTED = "UNSUPPORTED", "The kernel or its backend declares that it cannot do this case, and says why."
    MISSING = "MISSING", "No installed pack holds a kernel for this operator and backend."
    UNAVAILABLE = (
        "UNAVAILABLE",
        "The backend cannot run on this machine; the reason holds the command that would mend it.",
    )
    COMPILE_ERROR = "COMPILE_ERROR", "The DSL's compiler rejected the kernel."
    LAUNCH_ERROR = "LAUNCH_ERROR", "The kernel compiled but could not be launched, or raised while running."
    OUT_OF_MEMORY = "OUT_OF_MEMORY", "The device or the host had too little memory."
    TIMEOUT = "TIMEOUT", "A step took longer than its limit; the reason names the step."
    CRASHED = "CRASHED", "The worker process died, or the device reported an error that no later call can survive."
    NO_DEVICE_WORK = "NO_DEVICE_WORK", "The call left no trace on the device, so there is nothing to time."
    ERROR = "ERROR", "TileBench itself failed; please report it."

    explanation: str

    def __new__(cls, value: str, explanation: str = "") -> Outcome:
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        return member

    @property
    def may_have_numbers(self) -> bool:
        """True where a record of this outcome may hold latencies."""
        return self in (Outcome.PASSED, Outcome.SUSPICIOUS)

    @property
    def is_applicable(self) -> bool:
        """False where the trial could never have passed here: such trials are no failures and enter no average."""
        return self not in (Outcome.MISSING, Outcome.UNSUPPORTED, Outcome.UNAVAILABLE)

    @property
    def is_failure(self) -> bool:
        """True where something that was applicable did not pass; it makes the exit status 1."""
        return self.is_applicable and not self.may_have_numbers
