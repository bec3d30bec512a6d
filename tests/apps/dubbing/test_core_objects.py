"""Objects: keys that lead nowhere else, writes that overwrite nothing, in a directory, in memory and in S3."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagepost import Permanent, Retryable
from stagepost.errors import ConfigurationError
from stagepost_dubbing import keys, objects
from stagepost_dubbing.objects import ObjectDiffers, Objects
from tests.apps.dubbing.gate import WRITES
from tests.apps.dubbing.s3 import S3_VARIABLES, S3Server

TASK = "0b1c7f2e-6a0d-4f5e-9a52-1f0d5b6c7d8e"
KEY = f"asr/{TASK}/asr.json"


@pytest.fixture(params=["directory", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    match request.param:
        case "directory":
            return Objects((tmp_path / "store").as_uri())
        case "memory":
            return Objects(f"memory://{uuid.uuid4()}")
        case _:
            server: S3Server = request.getfixturevalue("s3")
            return Objects(server.url(str(uuid.uuid4())))


def test_an_object_is_read_as_it_was_stored(store: Objects, tmp_path: Path) -> None:
    assert not store.has(KEY)

    assert store.create(KEY, b"said")

    assert store.has(KEY)
    assert store.read(KEY) == b"said"
    assert store.fetch(KEY, tmp_path / "file").read_bytes() == b"said"
    assert store.list() == [KEY]


def test_another_object_is_not_overwritten(store: Objects) -> None:
    store.create(KEY, b"first")

    assert not store.create(KEY, b"first")
    with pytest.raises(ObjectDiffers, match="not overwritten"):
        store.create(KEY, b"second")
    assert store.read(KEY) == b"first"

    store.replace(KEY, b"third")
    assert store.read(KEY) == b"third"


def test_large_files_go_in_parts(store: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "IN_PARTS", 6 * 1024 * 1024)
    file = tmp_path / "large"
    file.write_bytes(bytes(range(256)) * 40_000)

    assert store.create(KEY, file)
    assert not store.create(KEY, file)

    assert store.fetch(KEY, tmp_path / "back").read_bytes() == file.read_bytes()


def test_an_object_is_lent_without_a_copy_where_that_is_possible(store: Objects, tmp_path: Path) -> None:
    store.create(KEY, b"one")

    lent = store.lend(KEY, tmp_path / "copy")

    assert lent.read_bytes() == b"one"
    assert (tmp_path / "copy").exists() == (not store.url.startswith("file:"))
    with pytest.raises(Permanent, match="is missing"):
        store.lend(f"asr/{TASK}/other", tmp_path / "other")


def test_an_object_that_is_not_there_is_a_clear_error(store: Objects, tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=f"object {KEY} is missing"):
        store.read(KEY)
    with pytest.raises(Permanent, match=f"object {KEY} is missing"):
        store.fetch(KEY, tmp_path / "file")


@pytest.mark.parametrize(
    "key",
    [
        "", "/", "../x", f"asr/{TASK}/../../x", f"/asr/{TASK}/asr.json", f"asr/{TASK}/a\x00b", f"asr/{TASK}/a\nb",
        f"asr/{TASK}/", f"asr/{TASK}", f"asr/{TASK}/a/b", f"asr//{TASK}/a", "asr/no-uuid/a", f"other/{TASK}/a",
        f"asr/{TASK}/..", f"asr/{TASK}/a\\b", f"asr/{TASK}/%2e%2e", f"asr/{TASK}/" + "a" * 1000, f"file:///asr/{TASK}/a",
    ],
)  # fmt: skip
def test_foreign_keys_are_refused(key: str, tmp_path: Path) -> None:
    store = Objects((tmp_path / "store").as_uri())
    for act in (
        store.has,
        store.read,
        lambda key: store.lend(key, tmp_path),
        lambda key: store.create(key, b"x"),
        lambda key: store.replace(key, b"x"),
    ):
        with pytest.raises(Permanent):
            act(key)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@given(st.text(max_size=60))
def test_no_text_makes_a_key_of_another_shape(text: str) -> None:
    makers: list[Callable[[str], str]] = [keys.video_key, keys.audio_key, keys.asr_key, keys.dub_key, keys.output_key]
    for make in makers:
        try:
            key = make(text)
        except Permanent:
            continue
        assert keys.checked_key(key) == key
        assert keys.task_of(key) == str(uuid.UUID(text))


def test_a_store_that_refuses_is_tried_again_later(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "RETRY", {"max_retries": 1})
    store = Objects(s3.url(str(uuid.uuid4())))
    store.create(KEY, b"before")
    with s3.refusing(WRITES):
        with pytest.raises(Retryable, match=f"failed to write asr/{TASK}/other"):
            store.create(f"asr/{TASK}/other", b"x")
        assert store.read(KEY) == b"before"
    assert store.create(f"asr/{TASK}/other", b"x")


def test_a_store_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "RETRY", {"max_retries": 1})
    for name, value in S3_VARIABLES.items():
        monkeypatch.setenv(name, value)
    store = Objects("s3://dubbing/x?endpoint=http://127.0.0.1:1")

    with pytest.raises(Retryable, match=f"^object store failed to read {KEY}: no answer from http://127.0.0.1:1 "):
        store.read(KEY)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x", "begins with 'ftp'"),
        ("file://relative/path", "three slashes"),
        ("s3://bucket?secret=x", "takes no option 'secret'"),
        ("s3://key:secret@bucket", "AWS_SECRET_ACCESS_KEY"),
        ("s3:///no-bucket", "s3://bucket/prefix"),
    ],
)
def test_a_url_that_cannot_work_says_what_would(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        Objects(url)
    assert "secret@" not in str(caught.value)
