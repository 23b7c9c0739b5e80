"""Lets Python find the modules of the folder where it was started, and those beside its script, after its own modules
and its packages. So no file of that folder takes the place of a module of Python."""

import os
import sys

_script = next((it for it in sys.orig_argv[1:] if not it.startswith("-")), "")
if os.path.isfile(_script):
    sys.path.append(os.path.dirname(os.path.abspath(_script)))
sys.path.append(os.getcwd())
