"""The parts of each exercise, a module an exercise: ``PARTS`` maps a part's key to its ``Part``."""
