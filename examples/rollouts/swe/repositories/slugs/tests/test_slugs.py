import unittest

from slugs import *


class SlugsTest(unittest.TestCase):
    def test_punctuation(self):
        self.assertEqual(slugify("What's new?"), 'whats-new')

    def test_spaces(self):
        self.assertEqual(slugify('a  b   c'), 'a-b-c')

    def test_plain(self):
        self.assertEqual(slugify(' Hello World '), 'hello-world')
