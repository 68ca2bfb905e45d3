"""How a machine that was never measured spends a step: few parameters for any thread count.

Decode, in the shape of ``cost.terms`` with what few rows can tell:

    t = bytes / R + layers · layer + rows · row / threads
    R = saturate(threads · core_rate / core_cost, bandwidth)

with the law of ``cost.law``; a prompt of some tokens:

    t = operations / (threads · core_operations) + layers · layer
"""

from __future__ import annotations

from typing import Any

from cpubound.cost.law import USUAL_SHARPNESS, saturate

Array = Any  # numpy.ndarray


class DecodeForm:
    """Seconds of a decode step. Amounts: bytes, layers, rows of matrices, core cost of a byte."""

    parameters: tuple[str, ...] = ("core_rate", "bandwidth", "layer", "row", "read_ratio")
    amounts = 4
    bandwidth: tuple[str, ...] = ("bandwidth", "read_ratio")

    def follows_links(self, place: int) -> bool:
        """Memory's bandwidth grows with what brings data, whatever the threads."""
        return self.parameters[place] == "bandwidth"

    def usual(self, threads: Array, links: Array) -> Array:
        """Return what parameters scatter around: 12 GB/s a core, 18 GB/s of a first link, ..."""
        import numpy as np

        one = np.ones(len(threads))
        return np.stack(
            [
                one * np.log(12e9),
                np.log(18e9) + 0.75 * np.log(links),
                np.log(30e-6) + 0.3 * np.log(threads),
                one * np.log(0.06e-6),
                0 * one,
            ],
            axis=-1,
        )

    def log_seconds(self, parameters: Array, threads: Array, amounts: Array) -> tuple[Array, Array]:
        """Return the logarithm of each row's seconds and its derivatives by parameter."""
        import numpy as np

        core_rate, bandwidth, layer, row, _ = np.exp(parameters).T
        n_bytes, layers, rows, core_cost = amounts.T
        alone = core_rate * threads / core_cost
        rate = saturate(alone, bandwidth, USUAL_SHARPNESS)
        of_bytes, of_layers, of_rows = n_bytes / rate, layers * layer, rows * row / threads
        seconds = of_bytes + of_layers + of_rows
        by_core = (rate / alone) ** USUAL_SHARPNESS
        slopes = [
            -of_bytes * by_core,
            -of_bytes * (1 - by_core),
            of_layers,
            of_rows,
            0 * seconds,
        ]
        return np.log(seconds), np.stack(slopes, axis=-1) / seconds[:, None]


class PromptForm:
    """Seconds of a prompt. Amounts: operations, layers."""

    parameters: tuple[str, ...] = ("core_operations", "layer")
    amounts = 2
    bandwidth: tuple[str, ...] = ()

    def follows_links(self, place: int) -> bool:
        """Nothing of a prompt does: it waits for arithmetic."""
        return False

    def usual(self, threads: Array, links: Array) -> Array:
        """Return what parameters scatter around: 50 GFLOP/s a core, 1 ms of a layer."""
        import numpy as np

        one = np.ones(len(threads))
        return np.stack([one * np.log(50e9), one * np.log(1e-3)], axis=-1)

    def log_seconds(self, parameters: Array, threads: Array, amounts: Array) -> tuple[Array, Array]:
        """Return the logarithm of each row's seconds and its derivatives by parameter."""
        import numpy as np

        core_operations, layer = np.exp(parameters).T
        operations, layers = amounts.T
        of_operations, of_layers = operations / (threads * core_operations), layers * layer
        seconds = of_operations + of_layers
        slopes = np.stack([-of_operations, of_layers], axis=-1)
        return np.log(seconds), slopes / seconds[:, None]
