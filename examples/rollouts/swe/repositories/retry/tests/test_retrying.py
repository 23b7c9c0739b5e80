import unittest

from retrying import *


class RetryingTest(unittest.TestCase):
    def test_third_time(self):
        calls = []
        def action():
            calls.append(1)
            if len(calls) < 3:
                raise ValueError
            return 'ok'
        self.assertEqual((retry(action), len(calls)), ('ok', 3))

    def test_last_error(self):
        def action():
            raise ValueError('down')
        with self.assertRaisesRegex(ValueError, 'down'):
            retry(action)

    def test_first_time(self):
        self.assertEqual(retry(lambda: 5), 5)
