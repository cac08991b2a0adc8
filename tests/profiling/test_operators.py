"""PyTorch's own operators for one decode step of the textbook decoder."""

from s13lib.profiling.operators import count_operators
from tests.model.decoders import small_config, textbook


def test_operators_grow_by_the_same_number_for_each_layer():
    counts = []
    for layers in (1, 2, 3):
        computing, views = count_operators(textbook(small_config(layers=layers)))
        counts.append((sum(computing.values()), sum(views.values())))
    per_layer = counts[1][0] - counts[0][0]
    assert counts[2][0] - counts[1][0] == per_layer
    assert 40 <= per_layer <= 55  # the lesson says about 45
    assert computing["mm"] == 3 * 7 + 1
    assert "view" not in computing
    assert views["transpose"] > 0


def test_operators_are_those_of_the_step_that_was_asked_for():
    decoder = textbook(small_config(layers=1))
    seen = []
    forward = decoder.forward
    decoder.forward = lambda tokens, cache: seen.append(tuple(tokens.shape)) or forward(tokens, cache)
    try:
        computing, views = count_operators(decoder, context=5, batch=3)
    finally:
        del decoder.forward
    assert seen == [(3, 4), (3, 1)]
    assert "promote_types" not in computing + views
