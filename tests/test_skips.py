"""Where CI is set, only what is listed may be skipped: a pytest of its own runs these."""

from __future__ import annotations

import pytest
from skip_guard import may_be_skipped

pytest_plugins = ["pytester"]

CONFTEST = "from skip_guard import pytest_make_collect_report, pytest_runtest_makereport"
SKIPS = {
    "by a mark": "@pytest.mark.skipif(True, reason='no engine')\ndef test_it(): pass",
    "in a test": "def test_it(): pytest.skip('no engine')",
    "in a fixture": "@pytest.fixture\ndef f(): pytest.skip('no engine')\ndef test_it(f): pass",
    "without cases": "@pytest.mark.parametrize('case', [])\ndef test_it(case): pass",
}


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    def call(test: str, *, ci: bool) -> pytest.RunResult:
        monkeypatch.setenv("CI", "1" if ci else "")
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(f"import pytest\n{test}")
        return pytester.runpytest("-p", "no:cacheprovider")

    return call


@pytest.mark.parametrize("test", SKIPS.values(), ids=SKIPS)
def test_a_skip_fails_in_ci_and_nowhere_else(run, test: str) -> None:
    assert run(test, ci=False).parseoutcomes() == {"skipped": 1}
    assert run(test, ci=True).parseoutcomes() in ({"failed": 1}, {"errors": 1})


def test_a_file_that_is_skipped_whole_fails_in_ci_with_its_reason(run) -> None:
    test = "pytest.importorskip('no_such_package')"
    assert run(test, ci=False).parseoutcomes() == {"skipped": 1}
    result = run(test, ci=True)
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines(["*CI is set*could not import 'no_such_package'*"])


def test_what_is_listed_or_expected_to_fail_passes_in_ci(run) -> None:
    assert run("def test_it(): pytest.skip('root reads everything')", ci=True).ret == 0
    assert run("@pytest.mark.xfail\ndef test_it(): raise ValueError", ci=True).ret == 0


@pytest.mark.parametrize(
    ("reason", "allowed"),
    [
        ("not installed: aarch64-linux-gnu-gcc, qemu-aarch64-static", True),
        ("not installed: qemu-aarch64-static", True),
        ("not installed: cc", False),
        ("the compiler has no runtime for address,undefined", True),
        ("llama-cpp-python is not installed", False),
    ],
)
def test_only_the_whole_reason_counts(reason: str, allowed: bool) -> None:
    assert may_be_skipped(reason) is allowed
