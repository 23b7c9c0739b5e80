import json


def read_lines(text):
    """Reads a text with one JSON value a line."""
    return [json.loads(line) for line in text.split("\n")]
