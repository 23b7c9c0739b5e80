import unittest

from lines import *


class LinesTest(unittest.TestCase):
    def test_blank(self):
        self.assertEqual(read_lines('1\n\n2\n'), [1, 2])

    def test_mark(self):
        self.assertEqual(read_lines('\ufeff{"a": 1}'), [{'a': 1}])

    def test_plain(self):
        self.assertEqual(read_lines('1\n"x"'), [1, 'x'])
