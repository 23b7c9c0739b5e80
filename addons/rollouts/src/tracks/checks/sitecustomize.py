"""Lets Python find the modules of the folder where it was started, and those beside its script, after its own modules
and its packages. No file of that folder takes the place of a module of Python, or of one that Python has on other
systems only and tries to import."""

import os
import sys
from importlib.machinery import PathFinder

_HERE = os.getcwd()
_PYTHON = {*sys.stdlib_module_names, "java", "org", "vms_lib"}


class _PythonAlone:
    """Finds modules of Python outside the folder, wherever the folder is in `sys.path`."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is not None or name not in _PYTHON:
            return None
        places = [it for it in sys.path if not (os.path.abspath(it) + "/").startswith(_HERE + "/")]
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec


sys.meta_path.insert(sys.meta_path.index(PathFinder), _PythonAlone)
_script = next((it for it in sys.orig_argv[1:] if not it.startswith("-")), "")
if os.path.isfile(_script):
    sys.path.append(os.path.dirname(os.path.abspath(_script)))
sys.path.append(_HERE)
