"""A program whose tests run in another process."""

import datetime
from decimal import Decimal


class Empty(LookupError): pass


class Odd(Exception): pass


class Shop:
    limit = 3
    def __init__(self, name, items=()):
        self.name, self.items = name, list(items)
    def __eq__(self, other): return isinstance(other, Shop) and self.name == other.name
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, k): return self.items[k]
    def __setitem__(self, k, v): self.items[k] = v
    def __enter__(self): self.items.append("open"); return self
    def __exit__(self, *e): self.items.append("closed")
    def first(self):
        if not self.items: raise Empty(f"{self.name} is empty")
        return self.items[0]
    def odd(self): raise Odd(1, "two")


def add_to(items, item): items.append(item); return len(items)


def each(items, function): return [function(it) for it in items]


def safe(function):
    try: return function()
    except ValueError as error: return str(error)


def tomorrow(day): return day + datetime.timedelta(days=1)


def price(): return Decimal("1.10")


def greet(): print("hello")


def now(): return clock()


def clock(): return 1


def numbers(n):
    yield from range(n)


def nest(d): d["a"]["b"].append(1); return d
