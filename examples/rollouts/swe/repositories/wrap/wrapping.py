def wrap(text, width):
    """Breaks a text into lines of at most `width` characters."""
    words = text.split()
    lines, line = [], ""
    while words:
        candidate = (line + " " + words[0]).strip()
        if len(candidate) <= width:
            line = candidate
            words.pop(0)
        else:
            lines.append(line)
            line = ""
            if len(lines) > 1000:
                raise RuntimeError("endless")
    return lines + [line] if line else lines
