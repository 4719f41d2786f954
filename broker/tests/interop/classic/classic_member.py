"""A member of a classic group with one stream, as a process.

`python classic_member.py TOPIC NAME=VALUE...` prints "record PARTITION OFFSET" for each message, until its standard
input ends; then it leaves the group.
"""

from __future__ import annotations

import sys
import threading

from odradek.classic import Consumer


def main(topic: str, *properties: str) -> None:
    """Run the member."""
    connector = Consumer.create(dict(each.split("=", 1) for each in properties))

    def leave() -> None:
        sys.stdin.read()
        connector.shutdown()

    (stream,) = connector.create_message_streams({topic: 1})[topic]
    leaving = threading.Thread(target=leave)
    leaving.start()
    for message in stream:
        sys.stdout.write(f"record {message.partition} {message.offset}\n")
        sys.stdout.flush()
    leaving.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
