"""All parsers, listed by hand: a document parser earlier in the list wins when two claim the same document."""

from sentinel.collector import Parser

ALL: tuple[Parser, ...] = ()
