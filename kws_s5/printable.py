"""Text of strangers (labels of models, names of files) as it may go to a terminal, a table or another program."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets take for the beginning of a formula


def printable(text: object) -> str:
    """On one line: control characters, line breaks and bytes that are no UTF-8 become escapes such as \\x1b."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cell(text: object) -> str:
    """As ``printable``, for a table that spreadsheets open: what would be a formula there gets a ' in front."""
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULA) else text
