"""What is not compared, by name, with the reason. Only things that no strided lazy device can do belong here."""

from __future__ import annotations

# Results are memory that nobody wrote: only their metadata is compared.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# Not run at all.
LEFT_OUT: dict[str, str] = {}
