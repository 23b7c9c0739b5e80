import unittest

from cache import *


class CacheTest(unittest.TestCase):
    def test_reading_counts_as_use(self):
        c = Cache(2)
        c.put('a', 1)
        c.put('b', 2)
        c.get('a')
        c.put('c', 3)
        self.assertEqual((c.get('a'), c.get('b'), c.get('c')), (1, None, 3))

    def test_missing(self):
        self.assertEqual(Cache(1).get('x'), None)

    def test_oldest_goes(self):
        c = Cache(1)
        c.put('a', 1)
        c.put('b', 2)
        self.assertEqual((c.get('a'), c.get('b')), (None, 2))
