import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamrsi.errors import UserError
from dreamrsi.workspace import Workspaces, check_files


def test_what_is_saved_is_loaded_and_equal_content_gives_equal_hashes(tmp_path, monkeypatch):
    files = {"packing.json": b"[[0.5, 0.5, 0.5]]", "notes/a b.txt": b"", 'odd "name"\\\n': bytes(range(256))}
    first = Workspaces(tmp_path / "a.git")
    root = first.save({"packing.json": b"[]"}, "refs/heads/root", "the seed workspace")
    child = first.save(files, "refs/attempts/round-01/0/0", "branch 0, attempt 0", parent=root)
    assert first.load(root) == {"packing.json": b"[]"}
    assert first.load(child) == files

    monkeypatch.setenv("GIT_AUTHOR_NAME", "someone")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    second = Workspaces(tmp_path / "b.git")
    assert second.save({"packing.json": b"[]"}, "refs/heads/root", "the seed workspace") == root
    assert second.save(files, "refs/attempts/round-01/0/0", "branch 0, attempt 0", parent=root) == child


def test_git_shows_the_history_and_collects_nothing(tmp_path):
    store = Workspaces(tmp_path / "w.git")
    root = store.save({"x": b"1\n"}, "refs/heads/root", "seed")
    child = store.save({"x": b"2\n"}, "refs/attempts/round-01/0/0", "attempt", parent=root)

    def git(*arguments):
        command = ["git", f"--git-dir={store.path}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("gc", "--quiet", "--prune=now")
    assert git("log", "--format=%H", "refs/attempts/round-01/0/0").split() == [child, root]
    assert "-1\n+2\n" in git("diff", root, child)
    assert store.load(child) == {"x": b"2\n"}


def test_a_second_save_under_a_ref_replaces_it_and_a_stale_lock_is_removed(tmp_path):
    store = Workspaces(tmp_path / "w.git")
    root = store.save({}, "refs/heads/root", "seed")
    store.save({"x": b"1"}, "refs/attempts/0/0", "first", parent=root)
    (store.path / "refs/attempts/0/0.lock").touch()
    store = Workspaces(tmp_path / "w.git")
    again = store.save({"x": b"2"}, "refs/attempts/0/0", "second", parent=root)
    assert store.load(again) == {"x": b"2"}
    assert store.load(root) == {}


@pytest.mark.parametrize(
    "files",
    [
        None,
        ["a"],
        {"a": "text"},
        {1: b""},
        {"": b""},
        {"/etc/passwd": b""},
        {"../up": b""},
        {"a/../b": b""},
        {".git/config": b""},
        {"sub/.GIT/hooks": b""},
        {"nul\0": b""},
        {"a": b"", "a/b": b""},
        {"\udc80": b""},
    ],
)
def test_bad_workspaces_are_refused(files):
    with pytest.raises((TypeError, ValueError)):
        check_files(files)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.binary(max_size=40), max_size=5))
def test_any_accepted_workspace_survives(tmp_path_factory, files):
    try:
        check_files(files)
    except ValueError:
        return
    store = Workspaces(tmp_path_factory.mktemp("store") / "w.git")
    assert store.load(store.save(files, "refs/heads/root", "any")) == files


def test_missing_git_and_missing_commit_are_user_errors(tmp_path, monkeypatch):
    store = Workspaces(tmp_path / "w.git")
    with pytest.raises(UserError, match="git ls-tree failed"):
        store.load("0" * 40)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="git was not found"):
        Workspaces(tmp_path / "other.git")
