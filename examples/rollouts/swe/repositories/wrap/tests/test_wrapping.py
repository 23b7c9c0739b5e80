import unittest

from wrapping import *


class WrappingTest(unittest.TestCase):
    def test_long_word(self):
        self.assertEqual(wrap('abcdefgh', 3), ['abc', 'def', 'gh'])

    def test_after_a_word(self):
        self.assertEqual(wrap('a bcdefg', 3), ['a', 'bcd', 'efg'])

    def test_plain(self):
        self.assertEqual(wrap('one two three', 7), ['one two', 'three'])
