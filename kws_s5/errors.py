"""Mistakes a user can make, told in one line: what is wrong, where, and how to mend it."""


class UserError(ValueError):
    """Something the caller can put right. The message is one clear line; commands print it without a traceback."""


NO_NUMBERS = (
    "the model gives NaN or infinity instead of scores: its file is damaged or was altered, or its training "
    "diverged; fetch or train it again"
)
