"""llama.cpp beside this library, where its environment was built: both run the same model."""

import pytest

from tools import llamacpp


def test_without_its_environment_it_is_one_sentence_that_says_what_would_help(monkeypatch, tmp_path):
    monkeypatch.setattr(llamacpp, "PYTHON", tmp_path / "nothing")
    assert llamacpp.ready() is False
    with pytest.raises(llamacpp.NotThere, match=r"build it with `.*llamacpp.py`"):
        llamacpp.decode(tmp_path / "model.gguf", [1], 1, 1)


def test_both_make_the_same_tokens():
    pytest.importorskip("torch")
    from s13lib.model import generate, smollm2
    from s13lib.model.checkpoints import load_checkpoint

    source = smollm2.models_folder() / smollm2.FILE
    if not llamacpp.ready() or not source.is_file():
        pytest.skip("needs tools/llamacpp.py (a build of some minutes) and run.py smollm")
    checkpoint = load_checkpoint("smollm2")
    prompt = checkpoint.tokenizer.encode("Once upon a time")
    ours = generate(checkpoint.model(4, blocks=8), [prompt], 16)[0]
    theirs = llamacpp.decode(llamacpp.converted(source, "f32"), prompt, 15, 1)
    assert theirs["tokens"] == ours
    assert len(theirs["seconds"][0]) == 15
