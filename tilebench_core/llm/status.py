"""What can become of one backend's part of a round, and of a whole trajectory."""

from __future__ import annotations

from enum import Enum

__all__ = ["End", "Status"]


class _Explained(str, Enum):
    """A string enumeration whose members carry a sentence that explains them to a user."""

    explanation: str

    def __new__(cls, value: str, explanation: str = "") -> _Explained:
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        return member


class Status(_Explained):
    """The end of one backend's part of a round. Those up to VIOLATION are known without running anything."""

    NO_CODE = "NO_CODE", "The reply holds no code block titled with the file's name."
    TRUNCATED = "TRUNCATED", "The reply was cut off before the code block ended."
    MALFORMED = "MALFORMED", "The block is no Python module with a function `run`."
    VIOLATION = "VIOLATION", "The compliance check, or the runtime guard, found what the contract forbids."
    NEEDS_REVIEW = (
        "NEEDS_REVIEW",
        "All cases passed, but a finding of the compliance check needs a person; not counted.",
    )
    COMPILE_ERROR = "COMPILE_ERROR", "The DSL's compiler rejected the kernel."
    LAUNCH_ERROR = "LAUNCH_ERROR", "The module or its kernel raised an error."
    WRONG = "WRONG", "A check of the outputs failed on at least one case."
    UNSUPPORTED = "UNSUPPORTED", "The candidate declares that it cannot do a case that it was asked for."
    OUT_OF_MEMORY = "OUT_OF_MEMORY", "The candidate needed more memory than it may use."
    TIMEOUT = "TIMEOUT", "Compiling or running took longer than its limit."
    CRASHED = "CRASHED", "The process died, or the device did not survive the candidate."
    BLOCKED = "BLOCKED", "The walls of the evaluator stopped the candidate: too many processes or too much memory."
    NO_DEVICE_WORK = "NO_DEVICE_WORK", "No kernel of the DSL reached the device."
    SUSPICIOUS = "SUSPICIOUS", "Verified, but faster than the device's ceilings allow."
    NOT_EVALUATED = "NOT_EVALUATED", "The evaluator itself failed; this says nothing about the candidate."
    VERIFIED = "VERIFIED", "All cases passed where nothing can be timed, for instance in an interpreter."
    VALID = "VALID", "All cases passed and were timed."

    @property
    def is_clean(self) -> bool:
        """True where every check of every case passed: only such candidates are ever promoted."""
        return self in (Status.VALID, Status.VERIFIED)


class End(_Explained):
    """Why a trajectory ended."""

    ROUNDS = "ROUNDS", "All rounds of the protocol were used."
    FROZEN = "FROZEN", "Every backend reached the performance at which the protocol stops."
    BUDGET = "BUDGET", "The next request could have exceeded a budget, so it was not sent."
