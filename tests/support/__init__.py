"""What the tests share: the device under test, moving inputs to it, comparing what comes back."""
