"""Speech made by a synthesiser: words, talk, noises, rooms, streams."""
