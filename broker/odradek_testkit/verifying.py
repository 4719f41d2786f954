"""A verifier of transactions in memory, which tests answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import NONE
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter


class Question(NamedTuple):
    """A verification that was requested."""

    writer: TransactionalWriter
    partitions: Sequence[TopicPartition]
    outcome: asyncio.Future[Mapping[TopicPartition, int]]

    def answer(self, code: int = NONE, **codes: int) -> None:
        """Answer with a code for all partitions; `codes` has others, by topic."""
        self.outcome.set_result({each: codes.get(each.topic, code) for each in self.partitions})


class MemoryVerifier:
    """Implements `TransactionVerifier`. Verifications wait until the test answers them, or get `code` at once."""

    def __init__(self, code: int | None = None) -> None:
        """`code`: None if the test answers each verification."""
        self.code = code
        self.questions: list[Question] = []
        """All verifications so far, in order."""

    async def verify(
        self, writer: TransactionalWriter, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the answer of the test."""
        question = Question(writer, tuple(partitions), asyncio.get_running_loop().create_future())
        self.questions.append(question)
        if self.code is not None:
            question.answer(self.code)
        return await question.outcome


async def settle() -> None:
    """Let everything run that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)
