"""The documentation agrees with the code: docstrings are complete, examples and snippets run; importing is light."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc
from numpydoc.validate import validate
from sklearn.base import ClassifierMixin

import rkdl
import rkdl.datasets
from helpers import assert_prints
from rkdl._cli import main

# Not required: an extended summary (ES01), a summary that starts with a verb (SS05 mistakes
# "Signals" for a verb), names of returned values (RT02), which scikit-learn omits too, and the order of
# parameters (PR03): nearly all are given by name, and classes inherit some.
NOT_REQUIRED = {"ES01", "SS05", "RT02", "PR03"}
# Methods are explained by their class.
NOT_REQUIRED_OF_METHODS = {"SA01", "EX01"}

MODULES = {
    "rkdl": rkdl,
    "rkdl.datasets": rkdl.datasets,
    "rkdl.kernels": rkdl.kernels,
    "rkdl.metrics": rkdl.metrics,
    "rkdl.plotting": rkdl.plotting,
}
OBJECTS = {
    f"{prefix}.{name}": getattr(module, name)
    for prefix, module in MODULES.items()
    for name in module.__all__
    if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))
}
ESTIMATORS = [name for name, value in OBJECTS.items() if inspect.isclass(value) and hasattr(value, "fit")]
# `__all__` lists modules too.
TOP_LEVEL = [f"rkdl.{name}" for name in rkdl.__all__ if f"rkdl.{name}" not in MODULES]


def own_methods(cls):
    """Public methods and properties that the library itself defines, its base classes included."""
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(value) and value.__module__.startswith("rkdl"):
            yield name


METHODS = [f"{name}.{method}" for name, cls in OBJECTS.items() if inspect.isclass(cls) for method in own_methods(cls)]


@pytest.mark.parametrize("name", [*OBJECTS, *METHODS])
def test_docstrings(name):
    """Complete; a method, and a function for data sets, need neither a See Also nor an example."""
    not_required = NOT_REQUIRED if name in TOP_LEVEL else NOT_REQUIRED | NOT_REQUIRED_OF_METHODS
    assert [f"{code}: {text}" for code, text in validate(name)["errors"] if code not in not_required] == []


def test_modules_have_docstrings_and_what_they_list():
    assert {"fit", "transform", "score", "reconstruction_error", "inverse_transform"} <= set(own_methods(rkdl.DL))
    for name, module in MODULES.items():
        assert module.__doc__, name
        assert all(hasattr(module, public) for public in module.__all__), name


def documented_parameters(value):
    """Names, type texts and descriptions of the Parameters section, in order."""
    doc = ClassDoc(value) if inspect.isclass(value) else FunctionDoc(value)
    found = {}
    for parameter in doc["Parameters"]:
        for name in parameter.name.split(", "):
            found[name] = parameter.type
    return found


def documented_default(text):
    match = re.search(r"default=(.*)$", text)
    assert match is not None, f"no default in {text!r}"
    return ast.literal_eval(match.group(1))


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_parameters_and_their_defaults(name):
    value = OBJECTS[name]
    signature = inspect.signature(value)
    documented = documented_parameters(value)
    assert sorted(documented) == sorted(signature.parameters)
    assert list(documented)[:1] == list(signature.parameters)[:1]
    for parameter in signature.parameters.values():
        text = documented[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            assert "default" not in text, parameter.name
        else:
            assert documented_default(text) == parameter.default, parameter.name
            # Distinguish None from False and 1 from True.
            assert type(documented_default(text)) is type(parameter.default), parameter.name


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_are_held_as_given(name):
    """All but the first are given by name, and nothing else is done with them."""
    parameters = inspect.signature(OBJECTS[name]).parameters
    assert [parameter.kind.name for parameter in parameters.values()][1:] == ["KEYWORD_ONLY"] * (len(parameters) - 1)
    given = {parameter: object() for parameter in parameters}
    assert vars(OBJECTS[name](**given)) == given


@pytest.mark.parametrize("name", ESTIMATORS)
def test_options_are_the_valid_ones(name):
    """A set of options in a docstring is what the parameter's validation accepts."""
    cls = OBJECTS[name]
    for parameter, text in documented_parameters(cls).items():
        options = {
            option
            for constraint in cls._parameter_constraints[parameter]
            for option in getattr(constraint, "options", ())
            if isinstance(option, str)
        }
        documented = set(re.findall(r'"([^"]+)"', text.split("default=")[0]))
        assert documented == options, parameter


@pytest.mark.parametrize("name", ESTIMATORS)
def test_attributes(name):
    cls = OBJECTS[name]
    X = [[0.0, 1.0], [1.0, 0.5], [2.0, -1.0], [0.5, 0.5]]
    if issubclass(cls, ClassifierMixin):
        model = cls(random_state=0).fit(X, [0, 0, 1, 1])
    elif cls is rkdl.SparseCoder:
        model = cls().fit(X)
    elif cls is rkdl.KDLRegressor:
        model = cls(random_state=0).fit(X, [0.0, 1.0, 2.0, 3.0])
    else:
        sizes = {"n_kernel_vectors": 2} if "n_kernel_vectors" in inspect.signature(cls).parameters else {}
        model = cls(2, n_nonzero_coefs=1, max_iter=1, random_state=0, **sizes).fit(X)
    fitted = {attribute for attribute in vars(model) if attribute.endswith("_") and not attribute.startswith("_")}
    documented = {attribute.name for attribute in ClassDoc(cls)["Attributes"]}
    assert documented - {"feature_names_in_", "decoder_", "decoder_intercept_"} == fitted


def examples_of(value, name):
    return doctest.DocTestFinder(recurse=False).find(value, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOP_LEVEL)
def test_examples_run(name):
    value = OBJECTS[name]
    tests = examples_of(value, name)
    assert "Examples\n" in inspect.getdoc(value)
    assert sum(len(test.examples) for test in tests) >= 2
    for test in tests:
        # A reader copies the example into an empty session.
        test.globs = {}
        failures = []
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=failures.append)
        assert runner.summarize(verbose=False).failed == 0, "".join(failures)


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_see_also_names_exist(name):
    value = OBJECTS[name]
    doc = ClassDoc(value) if inspect.isclass(value) else FunctionDoc(value)
    names = [entry for entries, _ in doc["See Also"] for entry, _ in entries]
    assert names
    for entry in names:
        assert hasattr(rkdl, entry.removeprefix("rkdl.")), entry


@pytest.mark.slow
def test_import():
    """It is light and silent, leaves garbage collection as it is, and `dir` shows what there is."""
    heavy = ["torch", "dask", "distributed", "matplotlib", "pooch", "pandas", "polars", "tqdm", "IPython", "triton"]
    code = f"""
import gc, sys
gc.disable()
import rkdl
assert [name for name in {heavy!r} if name in sys.modules] == []
assert not gc.isenabled()
assert {{name for name in dir(rkdl) if not name.startswith("__")}} == set(rkdl.__all__)
assert rkdl.datasets.__name__ == "rkdl.datasets"
assert rkdl.plotting.__name__ == "rkdl.plotting"
assert {{name for name in dir(rkdl.kernels) if not name.startswith("__")}} == set(rkdl.kernels.__all__)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


ROOT = Path(__file__).resolve().parent.parent
# A snippet, and what it prints if the page says so.
SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
# What the snippets of a page import beyond the library's own needs.
NEEDED = {
    "coming-from.md": ["spams", "dictlearn", "pyod"],
    "gpu.md": ["torch"],
    "outliers.md": ["pyod"],
    "scale.md": ["dask", "distributed"],
}
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if SNIPPET.search(page.read_text())]
GALLERY = sorted((ROOT / "examples").glob("*/*.py"))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_snippets_run(page, tmp_path, monkeypatch):
    """The snippets of a page run in order, in one session, without a warning, and print what the page says."""
    for name in NEEDED.get(page.name, []):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    try:
        for code, printed in SNIPPET.findall(page.read_text()):
            output = io.StringIO()
            with contextlib.redirect_stdout(output), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                exec(compile(code, str(page), "exec"), names)
            assert_prints(output.getvalue(), printed)
    finally:
        # One that an error leaves open would compute the Dask arrays of other tests.
        if "client" in names:
            names["client"].close()


@pytest.mark.slow
def test_commands_run(tmp_path, monkeypatch, capsys):
    """The commands on the page about the command line print what it says, on data that its snippet writes."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "command-line.md").read_text()
    (code, _), *_ = SNIPPET.findall(page)
    exec(compile(code, "command-line.md", "exec"), {"__name__": "__main__"})
    capsys.readouterr()
    session = re.findall(r"^\$ rkdl (.*)\n((?:(?!\$|```).*\n)*)", page, re.MULTILINE)
    assert len(session) >= 2
    for command, printed in session:
        status = main(shlex.split(command))
        found = capsys.readouterr()
        assert status == 0, found.err
        assert_prints(found.out, printed)


def test_there_are_pages_and_examples():
    if not (ROOT / "docs").is_dir():
        pytest.skip("the documentation is not part of an installed package")
    assert len(PAGES) >= 10
    assert len(GALLERY) >= 12


def test_links_between_pages():
    """Links from one page to another, and to images, lead somewhere in the repository."""
    broken = []
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            # The gallery is made from the examples when the site is built.
            example = ROOT / "examples" / f"{target.removeprefix('gallery/')}.py"
            if target != "gallery/index" and not example.exists() and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_public_name_is_in_the_reference():
    text = (ROOT / "docs" / "api.rst").read_text()
    listed = set(re.findall(r"^   (\w+)$", text, re.MULTILINE))
    constants = {name for name in rkdl.datasets.__all__ if name.isupper()}
    assert {name.rpartition(".")[2] for name in OBJECTS} <= listed
    assert all(f"currentmodule:: {name}" in text for name in MODULES)
    assert all(f"rkdl.datasets.{name}" in text for name in constants)


def test_figure_style_is_readable():
    """The style of the figures is found by its name, has an opaque background, and colours that can be told apart."""
    style = pytest.importorskip("matplotlib.style")
    with style.context("rkdl.figures"):
        settings = importlib.import_module("matplotlib").rcParams
        assert settings["figure.facecolor"] == settings["savefig.facecolor"] == "white"
        assert len(set(settings["axes.prop_cycle"].by_key()["color"])) == 7
