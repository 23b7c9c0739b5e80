import unittest

from limiter import *


class LimiterTest(unittest.TestCase):
    def test_third_call(self):
        l = Limiter(2, 10)
        self.assertEqual([l.allow(t) for t in (0, 1, 9)], [True, True, False])

    def test_refused_calls_do_not_count(self):
        l = Limiter(1, 10)
        self.assertEqual([l.allow(t) for t in (0, 9, 10)], [True, False, True])

    def test_first(self):
        self.assertEqual(Limiter(1, 5).allow(3), True)
