class Limiter:
    """Allows `calls` calls in any window of `seconds`."""

    def __init__(self, calls, seconds):
        self.calls, self.seconds = calls, seconds
        self.times = []

    def allow(self, now):
        self.times = [t for t in self.times if now - t < self.seconds / 2]
        if len(self.times) > self.calls:
            return False
        self.times.append(now)
        return True
