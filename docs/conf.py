"""Sphinx configuration of the documentation: `make docs` builds it into docs/_build/html."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any

import matplotlib as mpl

import rkdl

mpl.use("Agg")
# Examples compute on small data: threads beyond two only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "2")

project = "rkdl"
author = "The rkdl developers"
copyright = "The rkdl developers"
release = version = rkdl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    # Ships MathJax with the site, so that formulas are readable without a network.
    "sphinx-mathjax-offline",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.md5"]
# Single backquotes are code, as in scikit-learn's docstrings.
default_role = "code"
smartquotes = False
nitpicky = True
# Base classes of other projects, and types that numpydoc quotes from their docstrings.
nitpick_ignore_regex = [("py:.*", r"(sklearn|numpy|scipy|np|pyod|collections|typing|types|torch|pathlib|os)\..*")]

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Functions of the gallery's configuration cannot be pickled.
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
# Methods without their class: the column beside the page is narrow.
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py",
    "subsection_order": [f"../examples/{name}" for name in ("tutorial", "understand", "applications", "scale")],
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("rkdl",),
    "backreferences_dir": "generated/backreferences",
    "reference_url": {"rkdl": None},
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "plot_gallery": "True",
}

html_theme = "pydata_sphinx_theme"
html_title = f"rkdl {release}"
html_static_path = ["_static"]
html_css_files = ["rkdl.css"]
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
# The API reference is the index.
html_use_index = False
html_copy_source = False
html_context = {"default_mode": "auto"}
# Pages without pages below them have nothing to show there.
html_sidebars = {name: [] for name in ("index", "start", "coming-from", "gallery/tutorial/*")}
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def skip_foreign(app: Any, what: str, name: str, value: object, skip: bool, options: Any) -> bool | None:
    """Leave out members that scikit-learn or PyOD define: their own references describe them."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    home = getattr(inspect.unwrap(value) if callable(value) else value, "__module__", None) or ""
    return True if home.split(".")[0] in {"sklearn", "pyod"} else None


def escape_shapes(app: Any, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Escape the underscore of ``shape (n_iter_,)``, which reStructuredText takes for a link."""
    for number, line in enumerate(lines):
        if " : " in line and "shape (" in line:
            lines[number] = re.sub(r"_([,)])", r"\\_\1", line)


def setup(app: Any) -> None:
    """Register the hooks."""
    # Before numpydoc, which has the default priority of 500.
    app.connect("autodoc-process-docstring", escape_shapes, priority=400)
    app.connect("autodoc-skip-member", skip_foreign)
