"""The bytes of a request for many znodes and of its response, compared with the layout of ZooKeeper's records."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo import exceptions as kazoo_errors

from odradek.zk.multi_read import MultiRead, Read

STAT = (11, 12, 13, 14, 2, 3, 4, 0x15, 5, 6, 16)
END = pack(">i?i", -1, True, -1)


def found(data: bytes | None, stat: tuple[int, ...] = STAT) -> bytes:
    length = -1 if data is None else len(data)
    return pack(">i?i", 4, False, 0) + pack(">i", length) + (data or b"") + pack(">qqqqiiiqiiq", *stat)


def refused(code: int) -> bytes:
    return pack(">i?i", -1, False, code) + pack(">i", code)


def test_a_request_is_one_read_of_data_without_a_watch_for_each_path() -> None:
    request = MultiRead(["/a", "/ü"])
    one = pack(">i?i", 4, False, -1)
    assert request.type == 22
    assert request.serialize() == one + b"\0\0\0\2/a\0" + one + b"\0\0\0\3/\xc3\xbc\0" + END


def test_a_request_without_paths_has_only_the_end_marker() -> None:
    assert MultiRead(()).serialize() == END
    assert MultiRead.deserialize(END, 0) == []


def test_a_response_is_decoded_at_its_position_in_the_frame() -> None:
    frame = b"header" + found(b"data") + found(None) + found(b"") + END + b"rest"
    assert MultiRead.deserialize(frame, 6) == [(b"data", STAT), (None, STAT), (b"", STAT)]


@pytest.mark.parametrize(
    ("code", "kind"), [(-101, kazoo_errors.NoNodeError), (-102, kazoo_errors.NoAuthError)], ids=["no node", "no right"]
)
def test_the_error_of_one_znode_leaves_the_others(code: int, kind: type[Exception]) -> None:
    first, second, third = MultiRead.deserialize(found(b"1") + refused(code) + found(b"3") + END, 0)
    assert (first, third) == ((b"1", STAT), (b"3", STAT))
    assert type(second) is kind


def test_an_answer_without_its_end_is_an_error() -> None:
    with pytest.raises(Exception, match="unpack_from requires"):
        MultiRead.deserialize(found(b"1"), 0)


long = st.integers(-(2**63), 2**63 - 1)
integer = st.integers(-(2**31), 2**31 - 1)
stats = st.tuples(long, long, long, long, integer, integer, integer, long, integer, integer, long)
answers = st.one_of(st.tuples(st.none() | st.binary(max_size=40), stats), st.sampled_from([-101, -102, -112]))


@given(st.lists(answers, max_size=12))
def test_results_have_the_order_of_the_paths(wanted: list[tuple[bytes | None, tuple[int, ...]] | int]) -> None:
    frame = b"".join(refused(one) if isinstance(one, int) else found(*one) for one in wanted) + END

    def plain(read: Read) -> object:
        return read.code if isinstance(read, kazoo_errors.ZookeeperError) else read

    assert [plain(read) for read in MultiRead.deserialize(frame, 0)] == wanted
