import unittest

from templates import *


class TemplatesTest(unittest.TestCase):
    def test_braces_in_values(self):
        self.assertEqual(fill('{name}', name='{x}', x='!'), '{x}')

    def test_numbers(self):
        self.assertEqual(fill('{a}+{b}', a=1, b=2), '1+2')

    def test_unknown(self):
        self.assertEqual(fill('{a} {b}', a=1), '1 {b}')
