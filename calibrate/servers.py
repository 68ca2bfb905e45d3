"""Estimate cloud servers from the others: their CPUs left out one by one.

    python -m calibrate servers cloud-decode.csv.xz

The rows are llama-bench runs of CPU-only cloud servers, from the public benchmark data of Spare
Cores (github.com/SpareCores/sc-inspector-data), CC BY-SA 4.0; what is derived from them carries
that licence. Everything that is fitted is fitted without the CPUs that are judged: the variances
on the other three quarters of the CPUs, the parameters on all CPUs but the judged one, the width
of the interval on the CPUs of the other quarters.
"""
