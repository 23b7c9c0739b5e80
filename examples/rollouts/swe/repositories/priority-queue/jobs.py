import heapq


class Jobs:
    def __init__(self):
        self.heap = []

    def add(self, priority, job):
        heapq.heappush(self.heap, (priority, job))

    def next(self):
        return heapq.heappop(self.heap)[1]
