import unittest

from intervals import *


class IntervalsTest(unittest.TestCase):
    def test_inside(self):
        self.assertEqual(merge([(1, 5), (2, 3)]), [(1, 5)])

    def test_overlap(self):
        self.assertEqual(merge([(2, 6), (1, 3)]), [(1, 6)])

    def test_apart(self):
        self.assertEqual(merge([(1, 2), (4, 5)]), [(1, 2), (4, 5)])
