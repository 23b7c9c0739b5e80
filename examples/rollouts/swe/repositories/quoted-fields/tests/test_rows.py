import unittest

from rows import *


class RowsTest(unittest.TestCase):
    def test_quoted_comma(self):
        self.assertEqual(split_row('a,"b,c",d'), ['a', 'b,c', 'd'])

    def test_doubled_quote(self):
        self.assertEqual(split_row('"say ""hi""",x'), ['say "hi"', 'x'])

    def test_plain(self):
        self.assertEqual(split_row('a,,b\n'), ['a', '', 'b'])
