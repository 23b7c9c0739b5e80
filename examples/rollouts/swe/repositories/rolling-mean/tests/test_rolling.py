import unittest

from rolling import *


class RollingTest(unittest.TestCase):
    def test_all_windows(self):
        self.assertEqual(rolling_mean([1, 2, 3], 2), [1.5, 2.5])

    def test_one_window(self):
        self.assertEqual(rolling_mean([4, 6], 2), [5.0])

    def test_too_short(self):
        self.assertEqual(rolling_mean([1], 2), [])
