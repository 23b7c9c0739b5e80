"""Tests that use what a proxy of a program has to do."""

import contextlib, datetime, io, unittest
from decimal import Decimal
from unittest import mock
import shop
import stock.part
from stock import VALUE
from shop import Shop, Empty, Odd


class ShopTest(unittest.TestCase):

    def test_objects(self):
        one = Shop("a", items=["x", "y"])
        self.assertEqual((len(one), list(one), one[1], one.name, Shop.limit), (2, ["x", "y"], "y", "a", 3))
        one[0] = "z"; one.name = "b"
        self.assertEqual((one.first(), one), ("z", Shop("b")))
        self.assertNotEqual(one, Shop("c"))
        self.assertNotEqual(one, "b")
        self.assertIsInstance(one, Shop)
        self.assertIn("z", one)
        self.assertIs(Shop, shop.Shop)
        with one as opened: self.assertIs(opened, one)
        self.assertEqual(one.items, ["z", "y", "open", "closed"])

    def test_errors(self):
        with self.assertRaises(Empty): Shop("a").first()
        with self.assertRaises(LookupError) as caught: Shop("a").first()
        self.assertEqual(str(caught.exception), "a is empty")
        with self.assertRaises(Odd) as caught: Shop("a").odd()
        self.assertEqual(caught.exception.args, (1, "two"))
        with self.assertRaises(AttributeError): Shop("a").nothing
        with self.assertRaises(ImportError): import nothing_here

    def test_arguments(self):
        items = [1]
        self.assertEqual((shop.add_to(items, 2), items), (2, [1, 2]))
        inner = []; outer = {"a": {"b": inner}}
        shop.nest(outer)
        self.assertEqual((inner, outer), ([1], {"a": {"b": [1]}}))
        self.assertEqual(shop.each((1, 2), lambda it: it * 2), [2, 4])
        def fail(): raise ValueError("down")
        self.assertEqual(shop.safe(fail), "down")

    def test_values(self):
        self.assertEqual(shop.tomorrow(datetime.date(2024, 2, 28)), datetime.date(2024, 2, 29))
        self.assertEqual((shop.price(), VALUE, stock.part.get()), (Decimal("1.10"), {1, 2}, {1, 2}))
        self.assertEqual(list(shop.numbers(3)), [0, 1, 2])
        it = shop.numbers(2); self.assertEqual((next(it), next(it)), (0, 1))
        with self.assertRaises(StopIteration): next(it)

    def test_output_and_patches(self):
        with contextlib.redirect_stdout(io.StringIO()) as out: shop.greet()
        self.assertEqual(out.getvalue(), "hello\n")
        with mock.patch("shop.clock", lambda: 7): self.assertEqual(shop.now(), 7)
        self.assertEqual(shop.now(), 1)

    @unittest.skip("never")
    def test_skipped(self): pass

    @unittest.expectedFailure
    def test_expected(self): self.fail()
