import unittest

from settings import *


class SettingsTest(unittest.TestCase):
    def test_nested(self):
        self.assertEqual(merged({'log': {'file': 'a'}}, {'log': {'level': 1}}), {'log': {'file': 'a', 'level': 1}})

    def test_arguments_stay(self):
        base = {'log': {'file': 'a'}}
        merged(base, {'log': {'level': 1}, 'x': 2})
        self.assertEqual(base, {'log': {'file': 'a'}})

    def test_replaced(self):
        self.assertEqual(merged({'a': 1}, {'a': 2, 'b': 3}), {'a': 2, 'b': 3})
