"""Runs tests of unittest in a process in which no line of the tested program runs.

The program's modules are imported by a second process, in the folder where this one was started. A test gets proxies of
them: a call goes there, and a plain value (a number, a text, a list, ..) or an exception comes back. The second process
can end, print, or change whatever it likes: it has no way to report that a test passed, and nothing of its own is equal
to a plain value. The exit code is 0 if each named test was run and has passed; a test that is skipped has not.
"""

import base64
import builtins
import collections
import ctypes
import datetime
import decimal
import fractions
import importlib.abc
import importlib.machinery
import io
import json
import os
import subprocess
import sys
import types
import unittest

PLAIN = (type(None), bool, int, float, str)
SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
TEXTS = {
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "bytes": (bytes, lambda it: base64.b64encode(it).decode(), base64.b64decode),
    "bytearray": (bytearray, lambda it: base64.b64encode(it).decode(), lambda it: bytearray(base64.b64decode(it))),
}
PR_SET_DUMPABLE = 4


class ProgramEnded(BaseException):
    """The process of the program has ended, or does not keep to the protocol. No `assertRaises` takes it."""


class ProgramError(Exception):
    """An exception of a class that Python does not have."""


class Peer:
    """One of the two processes: what it has handed out, and its lines to the other."""

    def __init__(self, lines_in, lines_out):
        self.lines_in, self.lines_out = lines_in, lines_out
        self.handed_out, self.numbers = [], {}

    def encode(self, value):
        kind = type(value)
        if kind in PLAIN:
            return {"v": value}
        if kind is dict:
            return {"dict": [[self.encode(key), self.encode(item)] for key, item in value.items()]}
        for name, sequence in SEQUENCES.items():
            if kind is sequence:
                return {name: [self.encode(item) for item in value]}
        for name, (of_kind, to_text, _) in TEXTS.items():
            if kind is of_kind:
                return {name: to_text(value)}
        return self.hand_out(value)

    def number(self, value):
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.handed_out)
            self.handed_out.append(value)
        return self.numbers[id(value)]

    def decode(self, value):
        ((kind, content),) = value.items()
        if kind == "v" and type(content) in PLAIN:
            return content
        if kind == "dict":
            return {self.decode(key): self.decode(item) for key, item in content}
        if kind in SEQUENCES:
            return SEQUENCES[kind](self.decode(item) for item in content)
        if kind in TEXTS:
            return TEXTS[kind][2](content)
        if kind == "yours":
            return self.handed_out[content]
        return self.take(kind, content)

    def send(self, line):
        self.lines_out.write(json.dumps(line) + "\n")
        self.lines_out.flush()

    def call(self, function, args, kwargs):
        """Calls a function for the other process, and returns the answer, with the arguments as they are afterwards."""
        try:
            answer = {"ok": self.encode(function(*args, **kwargs))}
        except Exception as error:
            answer = {"raised": self.encode_error(error)}
        given = [*args, *kwargs.values()]
        answer["after"] = [self.encode(it) if type(it) in (list, dict, set, bytearray) else None for it in given]
        return answer

    def encode_error(self, error):
        names = [it.__name__ for it in type(error).__mro__ if getattr(builtins, it.__name__, None) is it]
        own = None if getattr(builtins, type(error).__name__, None) is type(error) else self.number(type(error))
        try:
            args = [self.encode(it) for it in error.args]
        except TypeError:
            args = [{"v": str(error)}]
        return [names, own, type(error).__name__, args]


class TestPeer(Peer):
    """The process of the tests."""

    def __init__(self, work):
        command = [sys.executable, "-B", os.path.abspath(__file__), "--program"]
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=work, text=True, encoding="utf-8")
        super().__init__(child.stdout, child.stdin)
        self.proxies, self.errors, self.has_ended = {}, {}, False

    def hand_out(self, value):
        if isinstance(value, Proxy):
            return {"yours": vars(value)["_number"]}
        if isinstance(value, types.ModuleType) or not callable(value):
            raise TypeError(f"a test cannot hand {type(value).__name__} to the program: plain values and functions only")
        if isinstance(value, type) and issubclass(value, ProgramError) and value in self.errors.values():
            return {"yours": next(number for number, it in self.errors.items() if it is value)}
        if isinstance(value, type) and getattr(builtins, value.__name__, None) is value:
            return {"builtin": value.__name__}
        return {"function": self.number(value)}

    def take(self, kind, content):
        if kind == "error class":
            return self.error_class(*content)
        if kind == "builtin" and isinstance(getattr(builtins, content), type):
            return getattr(builtins, content)
        if kind != "object" or type(content) is not int:
            raise ValueError(f"{kind} is not known")
        return self.proxies.setdefault(content, Proxy(content, self))

    def error_class(self, names, number, name):
        known = [getattr(builtins, it) for it in names]
        base = next(it for it in known if isinstance(it, type) and issubclass(it, Exception))
        if number is None:
            return base
        if number not in self.errors:
            self.errors[number] = type(str(name), (ProgramError, base) if base is not Exception else (ProgramError,), {})
        return self.errors[number]

    def ask(self, what, *args, **kwargs):
        if self.has_ended:
            raise ProgramEnded
        line = {"do": what, "args": [self.encode(it) for it in args]}
        line["kwargs"] = {name: self.encode(it) for name, it in kwargs.items()}
        try:
            self.send(line)
            while True:
                answer = json.loads(self.lines_in.readline())
                if "call" not in answer:
                    break
                function = self.handed_out[answer["call"]]
                given = [self.decode(it) for it in answer["args"]]
                self.send(self.call(function, given, {name: self.decode(it) for name, it in answer["kwargs"].items()}))
            sys.stdout.write(str(answer.get("printed", "")))
            if "raised" in answer:
                names, number, name, error_args = answer["raised"]
                raised = self.error_class(names, number, name)(*[self.decode(it) for it in error_args])
            else:
                raised, result = None, self.decode(answer["ok"])
            for old, new in zip([*args, *kwargs.values()], answer["after"]):
                if new is not None:
                    replace(old, self.decode(new))
        except Exception as error:
            self.has_ended = True
            raise ProgramEnded from error
        if raised is not None:
            raise raised
        return result


class ProgramPeer(Peer):
    """The process of the program."""

    def hand_out(self, value):
        if isinstance(value, type) and issubclass(value, Exception):
            names = [it.__name__ for it in value.__mro__ if getattr(builtins, it.__name__, None) is it]
            own = None if names[0] == value.__name__ else self.number(value)
            return {"error class": [names, own, value.__name__]}
        if isinstance(value, type) and getattr(builtins, value.__name__, None) is value:
            return {"builtin": value.__name__}
        return {"object": self.number(value)}

    def take(self, kind, content):
        return getattr(builtins, content) if kind == "builtin" else self.function(content)

    def function(self, number):
        def function(*args, **kwargs):
            args_out = [self.encode(it) for it in args]
            self.send({"call": number, "args": args_out, "kwargs": {n: self.encode(it) for n, it in kwargs.items()}})
            answer = json.loads(self.lines_in.readline())
            for old, new in zip([*args, *kwargs.values()], answer["after"]):
                if new is not None:
                    replace(old, self.decode(new))
            if "raised" in answer:
                names, _, _, error_args = answer["raised"]
                raise getattr(builtins, names[0])(*[self.decode(it) for it in error_args])
            return self.decode(answer["ok"])

        return function

    def serve(self):
        operations = {
            "import": self.public_names,
            "call": lambda function, *args, **kwargs: function(*args, **kwargs),
            "get": getattr, "set": setattr, "delete": delattr,
            "item": lambda it, key: it[key],
            "set item": lambda it, key, value: it.__setitem__(key, value),
            "delete item": lambda it, key: it.__delitem__(key),
            "iter": lambda it: list(it), "next": next, "len": len, "str": str, "repr": repr,
            "equal": lambda one, other: bool(one == other), "bool": bool,
            "is of": lambda kind, it: isinstance(it, kind),
            "enter": lambda it: it.__enter__(), "exit": lambda it: bool(it.__exit__(None, None, None)),
        }
        for line in self.lines_in:
            request = json.loads(line)
            args = [self.decode(it) for it in request["args"]]
            kwargs = {name: self.decode(it) for name, it in request["kwargs"].items()}
            sys.stdout = io.StringIO()
            answer = self.call(operations[request["do"]], args, kwargs)
            self.send(answer | {"printed": sys.stdout.getvalue()})

    @staticmethod
    def public_names(name):
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None) or [it for it in vars(module) if not it.startswith("_")]
        return module, [str(it) for it in names]


class Proxy:
    """An object of the program. It is equal to other objects of the program only, and only if the program says so."""

    def __init__(self, number, peer):
        vars(self).update(_number=number, _peer=peer)

    def __getattr__(self, name):
        if name.startswith("__") and name not in ("__name__", "__doc__"):
            raise AttributeError(name)
        return self._peer.ask("get", self, name)

    def __eq__(self, other):
        return isinstance(other, Proxy) and self._peer.ask("equal", self, other) is True

    __hash__ = object.__hash__

    def __call__(self, *args, **kwargs):
        return self._peer.ask("call", self, *args, **kwargs)

    def __setattr__(self, name, value):
        self._peer.ask("set", self, name, value)

    def __delattr__(self, name):
        self._peer.ask("delete", self, name)

    def __getitem__(self, key):
        return self._peer.ask("item", self, key)

    def __setitem__(self, key, value):
        self._peer.ask("set item", self, key, value)

    def __delitem__(self, key):
        self._peer.ask("delete item", self, key)

    def __iter__(self):
        return iter(self._peer.ask("iter", self))

    def __next__(self):
        return self._peer.ask("next", self)

    def __len__(self):
        return self._peer.ask("len", self)

    def __bool__(self):
        return self._peer.ask("bool", self)

    def __str__(self):
        return self._peer.ask("str", self)

    def __repr__(self):
        return self._peer.ask("repr", self)

    def __enter__(self):
        return self._peer.ask("enter", self)

    def __exit__(self, kind, error, trace):
        self._peer.ask("exit", self)

    def __instancecheck__(self, other):
        return isinstance(other, Proxy) and self._peer.ask("is of", self, other) is True


class ProgramModule(types.ModuleType):
    def __getattr__(self, name):
        return getattr(vars(self)["_proxy"], name)

    def __setattr__(self, name, value):
        # Python sets what its imports need; a test sets what it patches.
        if name.startswith("__") or isinstance(value, types.ModuleType):
            super().__setattr__(name, value)
        else:
            setattr(vars(self)["_proxy"], name, value)

    def __delattr__(self, name):
        delattr(vars(self)["_proxy"], name)


class ProgramImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports from the program what neither Python nor the test files have."""

    def __init__(self, peer):
        self.peer = peer

    def find_spec(self, name, path=None, target=None):
        # Python tries to import modules that it has on other systems only.
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        proxy, names = self.peer.ask("import", spec.name)
        module = ProgramModule(spec.name)
        # `import *` must not replace what the test file has of Python itself.
        taken = {*dir(builtins), *sys.stdlib_module_names}
        vars(module).update(_proxy=proxy, __all__=[it for it in names if it not in taken])
        return module

    def exec_module(self, module):
        pass


class Count(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)


def replace(old, new):
    """Makes a list, dict, set or bytearray equal to `new`, and its parts too, as far as both have them."""
    if type(old) is dict and type(new) is dict:
        parts = {key: old[key] for key in old if key in new}
        old.clear()
        old.update({key: kept(parts[key], it) if key in parts else it for key, it in new.items()})
    elif type(old) is list and type(new) is list:
        old[:] = [kept(part, it) for part, it in zip(old, new)] + new[len(old):]
    elif type(old) is set and type(new) is set:
        old.clear()
        old.update(new)
    elif type(old) is bytearray and type(new) is bytearray:
        old[:] = new


def kept(old, new):
    if type(old) is type(new) and type(old) in (dict, list, set, bytearray):
        replace(old, new)
        return old
    return new


def run_tests(names):
    # No other process of this user may read or change the memory and the files of this one.
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("this process cannot be protected from others of this user")
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree"))
    sys.meta_path.append(ProgramImporter(TestPeer(os.getcwd())))
    loader = unittest.TestLoader()
    suites = [loader.loadTestsFromName(name) for name in names]
    is_each_found = all(suite.countTestCases() > 0 for suite in suites)
    suite = unittest.TestSuite(suites)
    expected = suite.countTestCases()
    result = unittest.TextTestRunner(resultclass=Count, verbosity=2).run(suite)
    return is_each_found and result.wasSuccessful() and result.passed == expected


def serve_program():
    sys.path[:] = [os.getcwd(), *sys.path]
    lines_in, lines_out = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    ProgramPeer(lines_in, lines_out).serve()


if __name__ == "__main__":
    if sys.argv[1:] == ["--program"]:
        serve_program()
    else:
        # The program's process is left behind where it stops. It ends with the sandbox.
        is_passed = bool(sys.argv[1:]) and run_tests(sys.argv[1:])
        sys.stdout.flush()
        os._exit(0 if is_passed else 1)
