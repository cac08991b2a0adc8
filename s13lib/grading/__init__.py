"""Checks of the exercises, with reasons: ``check("1a", pinned_mib)`` in a notebook, ``s13 grade`` for a class.

An exercise has parts. A part says how to make fresh inputs, how an answer is driven with them, and what the reference
gives; and it lists named wrong answers, which are executable too: an answer that behaves like one of them gets its
explanation. The learner's code runs elsewhere (in a guard, or in a process of its own); what it gave is judged here.
"""

from s13lib.grading.notebook import CheckFailed, check, hint, inputs, progress

__all__ = ["CheckFailed", "check", "hint", "inputs", "progress"]
