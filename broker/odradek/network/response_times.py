"""The samples of requests whose responses are being sent over one connection."""

from __future__ import annotations

from odradek.metrics.request_stats import RequestSample


class ResponseTimes:
    """Completes each sample when its response was sent. All times are monotonic, in ms."""

    __slots__ = ("_samples", "_sending_ms")

    def __init__(self) -> None:
        """Without samples."""
        self._samples: list[RequestSample] = []
        self._sending_ms = 0.0

    @property
    def is_in_use(self) -> bool:
        """Whether a sampled response is being sent."""
        return bool(self._samples)

    def add(self, sample: RequestSample, *, sends: bool) -> None:
        """Keep a sample until its response is sent. Without a response (acks=0), complete it now."""
        if sends:
            self._samples.append(sample)
        else:
            sample.sent(sample.answered_ms, sample.answered_ms)

    def begin(self, now_ms: float) -> None:
        """The responses are passed to the transport from now on."""
        self._sending_ms = self._sending_ms or now_ms

    def end(self, now_ms: float) -> None:
        """All responses were sent."""
        samples, self._samples = self._samples, []
        sending_ms, self._sending_ms = self._sending_ms, 0.0
        for sample in samples:
            sample.sent(max(sending_ms, sample.answered_ms), now_ms)

    def clear(self) -> None:
        """Forget the samples: the connection was closed."""
        self._samples.clear()
