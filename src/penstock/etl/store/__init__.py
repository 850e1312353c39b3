"""The tables of the room and every statement on them, cut along its nouns."""
