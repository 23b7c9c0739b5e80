import unittest

from paths import *


class PathsTest(unittest.TestCase):
    def test_root(self):
        self.assertEqual(normal('/a/../../b'), '/b')

    def test_dots(self):
        self.assertEqual(normal('a//b/.'), 'a/b')

    def test_leading_parent(self):
        self.assertEqual(normal('../a'), '../a')

    def test_plain(self):
        self.assertEqual(normal('/a/b/../c'), '/a/c')
