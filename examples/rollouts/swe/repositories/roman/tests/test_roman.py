import unittest

from roman import *


class RomanTest(unittest.TestCase):
    def test_subtraction(self):
        self.assertEqual([roman(n) for n in (4, 9, 40, 90, 400, 900)], ['IV', 'IX', 'XL', 'XC', 'CD', 'CM'])

    def test_year(self):
        self.assertEqual(roman(1994), 'MCMXCIV')

    def test_addition(self):
        self.assertEqual(roman(2016 - 10), 'MMVI')
