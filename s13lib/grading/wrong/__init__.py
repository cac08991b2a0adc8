"""Named wrong answers, a module an exercise: ``WRONG`` maps a part's key to its ``Wrong`` answers.

A grading sandbox hides this package from submissions, as it does the solutions.
"""
