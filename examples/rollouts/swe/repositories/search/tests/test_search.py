import unittest

from search import *


class SearchTest(unittest.TestCase):
    def test_last(self):
        self.assertEqual([find([1, 3, 5], x) for x in (1, 3, 5)], [0, 1, 2])

    def test_single(self):
        self.assertEqual(find([7], 7), 0)

    def test_missing(self):
        self.assertEqual((find([1, 3], 2), find([], 1)), (-1, -1))
