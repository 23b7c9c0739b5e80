import unittest

from shares import *


class SharesTest(unittest.TestCase):
    def test_rest(self):
        self.assertEqual(split_bill(1000, 3), [334, 333, 333])

    def test_two_left(self):
        self.assertEqual(split_bill(5, 3), [2, 2, 1])

    def test_even(self):
        self.assertEqual(split_bill(900, 3), [300, 300, 300])
