def normal(path):
    """Returns a path without `.`, `..` and doubled slashes."""
    parts = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
