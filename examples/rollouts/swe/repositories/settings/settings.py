def merged(base, changes):
    """Returns settings with changes laid over them."""
    base.update(changes)
    return base
