import unittest

from days import *


class DaysTest(unittest.TestCase):
    def test_last_day(self):
        self.assertEqual(days('2024-02-28', '2024-03-01'), ['2024-02-28', '2024-02-29', '2024-03-01'])

    def test_one_day(self):
        self.assertEqual(days('2024-01-01', '2024-01-01'), ['2024-01-01'])

    def test_backwards(self):
        self.assertEqual(days('2024-01-02', '2024-01-01'), [])
