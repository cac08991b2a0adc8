"""Messages between the grader and a learner's process: a length, a number, and a value in the form of ``codec``."""

from __future__ import annotations

import struct
from typing import BinaryIO

from s13lib.grading.codec import MOST_BYTES, CodecError, decode, encode
from s13lib.grading.part import Observation, Part, Trouble
from s13lib.grading.texts import TROUBLES

HEAD = struct.Struct("<QQ")  # length of the message, and the number that joins a reply to its request
MOST_DETAIL = 1_000  # characters of a trouble's detail


class Ended(Exception):
    """The other side has gone."""


def send(pipe: BinaryIO, number: int, value: object) -> None:
    """Write one message. A value that cannot be sent is a ``CodecError``, before anything is written."""
    message = encode(value)
    try:
        pipe.write(HEAD.pack(len(message), number) + message)
        pipe.flush()
    except (OSError, ValueError):  # the pipe is broken, or closed
        raise Ended from None


def receive(pipe: BinaryIO) -> tuple[int, object]:
    """Read one message: its number and its value. Never reads more than a message may hold."""
    size, number = HEAD.unpack(_exactly(pipe, HEAD.size))
    if size > MOST_BYTES:
        raise CodecError(f"a message of {size:,} bytes")
    return number, decode(_exactly(pipe, size))


def _exactly(pipe: BinaryIO, count: int) -> bytes:
    try:
        data = pipe.read(count)
    except (OSError, ValueError):
        raise Ended from None
    if data is None or len(data) < count:
        raise Ended
    return data


def packed(observation: Observation) -> dict[str, object]:
    """An observation as a plain value."""
    trouble = observation.trouble
    return {
        "value": observation.value,
        "trouble": None if trouble is None else (trouble.kind, trouble.detail[:MOST_DETAIL]),
        "mutated": observation.mutated,
    }


def unpacked(reply: object, part: Part) -> Observation:
    """The observation in a reply. One that no guard would make is a ``CodecError``: it may come from anybody."""
    if not isinstance(reply, dict) or reply.keys() != {"value", "trouble", "mutated"}:
        raise CodecError("a reply that is no observation")
    trouble, mutated = reply["trouble"], reply["mutated"]
    if trouble is not None:
        named = isinstance(trouble, tuple) and len(trouble) == 2 and all(isinstance(word, str) for word in trouble)
        if not named or trouble[0] not in TROUBLES or len(trouble[1]) > MOST_DETAIL:
            raise CodecError("a reply that is no observation")
        trouble = Trouble(*trouble)
    if not isinstance(mutated, tuple) or not all(name in part.parameters for name in mutated):
        raise CodecError("a reply that is no observation")
    return Observation(reply["value"], trouble, mutated)
