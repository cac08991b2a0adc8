"""The parts of ``tools/gpu_check.py``; each is a function of a ``Bench`` that writes what it finds, line by line."""
