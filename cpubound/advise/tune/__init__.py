"""What to set for a model on this machine, and the proof by running it."""

from cpubound.advise.tune.choice import tune
from cpubound.advise.tune.values import Advice, Choice, Recommendation

__all__ = ["Advice", "Choice", "Recommendation", "tune"]
