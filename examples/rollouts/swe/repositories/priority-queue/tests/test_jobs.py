import unittest

from jobs import *


class JobsTest(unittest.TestCase):
    def test_same_priority(self):
        j = Jobs()
        for name in 'cab':
            j.add(1, name)
        self.assertEqual([j.next() for _ in range(3)], ['c', 'a', 'b'])

    def test_dictionaries(self):
        j = Jobs()
        j.add(1, {'a': 1})
        j.add(1, {'b': 2})
        self.assertEqual(j.next(), {'a': 1})

    def test_priorities(self):
        j = Jobs()
        j.add(2, 'later')
        j.add(1, 'now')
        self.assertEqual(j.next(), 'now')
