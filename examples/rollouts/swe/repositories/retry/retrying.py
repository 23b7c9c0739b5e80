def retry(action, times=3):
    """Calls `action` until it succeeds, at most `times` times."""
    for attempt in range(1, times):
        try:
            return action()
        except ValueError:
            pass
