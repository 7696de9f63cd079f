"""Keys of a study on EEG: recordings, and the features that are made of them."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from capeneuro.config.sections import Positive, Range, Section, fail

# Positions with another name in the 10-20 system than in the later 10-10 system.
OLD_NAMES = {"t3": "t7", "t4": "t8", "t5": "p7", "t6": "p8"}


def plain_name(channel: str) -> str:
    """Name of a channel as names are compared.

    Case, dots and blanks do not count, nor EDF's ``EEG`` before a name, nor ``-REF``
    behind it; T3, T4, T5 and T6 are T7, T8, P7 and P8. Any other reference in a name
    (``Fp1-A1``) counts: those are other data.
    """
    bare = re.sub(r"(?i)^\s*eeg[\s.]+|[-_\s]ref[.\s]*$", "", channel) or channel
    plain = re.sub(r"[.\s]", "", bare).casefold()
    return OLD_NAMES.get(plain, plain)


class Recordings(Section):
    """Keys on recordings of EEG, for all kinds of features."""

    # Block of the study file that the keys are in, for errors.
    block: ClassVar[str] = "fusion.eeg"

    kind: str
    """Kind of the features."""
    channels: Annotated[list[str], Field(min_length=1)]
    """Names of the channels, in the order of the features; case, dots and blanks do not
    count (`Fc5.` is `FC5`), `EEG Fp1-REF` is `Fp1`, and `T3` is `T7`. Where a site's
    files have other names, its `eeg_about.channels` says them."""
    interpolate: bool = False
    """Interpolate channels that a recording marks as bad, by spherical splines from its
    own good channels at the places of `montage` or of easycap-M1; false: an
    error."""
    max_interpolated: Annotated[int, Field(ge=1)] | None = None
    """Most channels of a recording that are interpolated; null: a tenth of the
    study's channels, and at least one."""
    montage: str | None = None
    """Public positions of the channels, for topographies: a name that MNE-Python knows
    such as `easycap-M1`, or a file; null: none are drawn."""
    sampling_rate: Positive
    """[Hz] that recordings must have."""
    resample: bool = False
    """Resample recordings of another rate; false: an error."""
    low_pass: Positive | None = None
    """Upper edge of the pass band [Hz]."""
    high_pass: Positive | None = None
    """Lower edge of the pass band [Hz]."""
    reference: Literal["recorded", "average"] = "recorded"
    """`average`: over the channels above."""
    reject: Positive | None = None
    """Drop epochs with a larger range in one of the channels [uV]; null: none."""
    min_epochs: Annotated[int, Field(ge=1)] = 10
    """Fewest epochs of a person that are kept, of either kind of event, or segments. An
    average of ten still has a third of one epoch's noise."""
    min_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Least share of a person's epochs that is kept, of either kind of event."""

    @property
    def most_interpolated(self) -> int:
        """Most channels of a recording that may be interpolated; 0: none."""
        share = max(1, len(self.channels) // 10)
        return (self.max_interpolated or share) if self.interpolate else 0

    @model_validator(mode="after")
    def _channels_and_filter(self) -> "Recordings":
        low, high = self.low_pass, self.high_pass
        if low and high and high >= low:
            fail(f"high_pass must be below low_pass {low:g}, got {high:g}")
        for edge in filter(None, (low, high)):
            if edge >= self.sampling_rate / 2:
                fail(
                    "low_pass and high_pass must be below half the sampling rate "
                    f"{self.sampling_rate / 2:g}, got {edge:g}"
                )
        plain = list(map(plain_name, self.channels))
        repeated = [c for i, c in enumerate(self.channels) if plain[i] in plain[:i]]
        if repeated:
            fail(f"channels must differ, got {', '.join(repeated)} again")
        if self.max_interpolated and not self.interpolate:
            fail("max_interpolated needs interpolate: true")
        return self


class ErpOptions(Recordings):
    """Features of a person's EEG: an event-related potential, channels by windows."""

    kind: Literal["erp"] = "erp"
    events: Annotated[list[str], Field(min_length=1)]
    """Names of the events whose epochs are averaged, as MNE-Python has them
    (`Stimulus/S 11`, `square`, `T1`; a code of the trigger channel such as `"5"`), or
    as the `_events.tsv` of a BIDS folder has them. Each person must have all of them.
    An epoch that is already cut counts if the event is any of those in it."""
    minus: Annotated[list[str], Field(default_factory=list)]
    """Events whose average is subtracted, for a difference wave."""
    tmin: float
    """Start of an epoch, from the event [s]."""
    tmax: float
    """End of an epoch [s]."""
    baseline: Range | None = None
    """Interval whose mean is subtracted from each epoch [s]; null: none."""
    n_windows: Annotated[int, Field(ge=1)]
    """Equal windows of the epoch; their means are the features, channel by channel."""

    @model_validator(mode="after")
    def _possible(self) -> "ErpOptions":
        if self.tmin >= self.tmax:
            fail(f"tmin must be below tmax {self.tmax:g}, got {self.tmin:g}")
        if self.baseline:
            low, high = self.baseline
            last = low + 1.9 / self.sampling_rate
            if not (self.tmin <= low and last <= high <= self.tmax):
                fail(
                    f"baseline must lie in [tmin, tmax], 2 points long, got {low, high}"
                )
        if self.n_windows > self.n_points:
            fail(
                f"n_windows must be at most the {self.n_points} points of an epoch, "
                f"got {self.n_windows}"
            )
        if shared := [e for e in self.events if e in self.minus]:
            fail(f"events and minus must differ, got {shared[0]!r} in both")
        return self

    @property
    def n_points(self) -> int:
        """Points of an epoch, both ends included."""
        return round((self.tmax - self.tmin) * self.sampling_rate) + 1

    @property
    def kinds(self) -> dict[str, list[str]]:
        """Names of the events of each kind that is asked for."""
        names_by_kind = {"events": self.events, "minus": self.minus}
        return {kind: names for kind, names in names_by_kind.items() if names}

    @property
    def n_columns(self) -> int:
        """Features of one channel."""
        return self.n_windows


class BandsOptions(Recordings):
    """Features of a person's EEG: shares of frequency bands in each channel's power."""

    kind: Literal["bands"]
    bands: Annotated[tuple[Range, ...], Field(min_length=2)] = (
        (1.0, 4.0),
        (4.0, 8.0),
        (8.0, 13.0),
        (13.0, 30.0),
    )
    """Bands [Hz], low end included: delta, theta, alpha and beta. Features are the
    share of each in the power of all of them, channel by channel."""
    segment: Positive = 2.0
    """Length of the segments whose spectra are averaged [s]; they overlap by half, and
    those that touch a bad segment or a break are left out."""

    @model_validator(mode="after")
    def _possible(self) -> "BandsOptions":
        highest, least = max(high for _, high in self.bands), 1 / self.segment
        if highest > self.sampling_rate / 2:
            fail(
                "bands must be at most half the sampling rate "
                f"{self.sampling_rate / 2:g}, got {highest:g}"
            )
        for low, high in self.bands:
            if low < least or high - low < least:
                fail(
                    f"bands must begin at {least:g} Hz or above and be as wide, one "
                    f"over segment, got {low:g} to {high:g}"
                )
        return self

    @property
    def n_points(self) -> int:
        """Points of a segment."""
        return round(self.segment * self.sampling_rate)

    @property
    def n_columns(self) -> int:
        """Features of one channel."""
        return len(self.bands)
