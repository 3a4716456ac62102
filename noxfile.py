#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""The matrix of versions: `nox -s tests-3.13`, `nox -s oldest`. For every day there is `make test`."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True


@nox.session(python=["3.10", "3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run the tests with the newest versions of everything."""
    session.install("-c", ".ci/constraints.txt", "-e", ".[all]")
    how = ("-n", "auto", "--dist", "worksteal", "-m", "not slow and not site")
    session.run("python", "-m", "pytest", *how, *session.posargs)


@nox.session(python="3.10", default=False)
def oldest(session: nox.Session) -> None:
    """Run what needs the required packages alone, with the oldest versions that pyproject.toml allows."""
    session.run("make", "test-oldest", external=True)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site and the report."""
    session.run("make", "docs", external=True)


if __name__ == "__main__":
    nox.main()
