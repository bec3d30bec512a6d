"""Settings come from the variables that the document names, and say what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagepost.errors import ConfigurationError
from stagepost_dubbing import Dubbing, DubbingSettings
from stagepost_dubbing.settings import STEPS


def test_variables_are_those_of_the_document() -> None:
    settings = DubbingSettings.load(
        {
            "TRANSLATE_BATCH_SIZE": "7", "TTS_BATCH_SIZE": "8", "TTS_MAX_CONCURRENCY": "9", "TTS_MAX_RETRIES": "10",
            "TTS_RETRY_DELAY_SECONDS": "1.5", "TIMEOUT_EXTRACT_AUDIO_SECONDS": "11", "TIMEOUT_ASR_SECONDS": "12",
            "TIMEOUT_TRANSLATE_SECONDS": "13", "TIMEOUT_TTS_SECONDS": "14", "TIMEOUT_MUX_SECONDS": "15",
        }
    )  # fmt: skip

    assert (settings.translate_batch_size, settings.tts_batch_size, settings.tts_max_concurrency) == (7, 8, 9)
    assert (settings.tts_max_retries, settings.tts_retry_delay_seconds) == (10, 1.5)
    assert [settings.timeout(step) for step in STEPS] == [11, 12, 13, 14, 15]
    assert settings.timeout_variable("mux_video") == "TIMEOUT_MUX_SECONDS"


def test_everything_is_in_one_directory_unless_servers_are_named(tmp_path: Path) -> None:
    settings = DubbingSettings.load({"DUBBING_HOME": str(tmp_path)})

    assert settings.database_url == f"sqlite:///{tmp_path}/dubbing.db"
    assert settings.objects_url == f"file://{tmp_path}/objects"


def test_a_secret_can_be_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://dubber:secret@db/dubbing\n")

    settings = DubbingSettings.load({"DUBBING_DATABASE_URL_FILE": str(secret)})

    assert settings.database_url == "postgresql://dubber:secret@db/dubbing"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TTS_BATCH_SIZE", "many", "TTS_BATCH_SIZE: Expected `int`"),
        ("TTS_BATCH_SIZE", "0", "TTS_BATCH_SIZE is 0: it must be 1 or more"),
        ("TTS_MAX_RETRIES", "-1", "TTS_MAX_RETRIES is -1: it cannot be negative"),
        ("TIMEOUT_MUX_SECONDS", "0", "TIMEOUT_MUX_SECONDS is 0.0: it must be more than 0 seconds"),
        ("DUBBING_DATABASE_URL_FILE", "/does/not/exist", "DUBBING_DATABASE_URL_FILE: .* Name a file"),
    ],
)
def test_a_value_that_cannot_work_names_its_variable(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DubbingSettings.load({variable: value})


def test_a_broker_carries_the_queues_of_the_document(tmp_path: Path) -> None:
    environment = {"DUBBING_HOME": str(tmp_path), "STAGEPOST_TRANSPORT": "amqp://guest:guest@localhost/"}

    with Dubbing(environment=environment) as dubbing:
        settings = dubbing.app.settings.rabbitmq

    carried = [queue for queue in dubbing.app.registry.queues if settings.carries(queue)]
    assert sorted(settings.routing_key(queue) for queue in carried) == [
        "task.asr", "task.extract_audio", "task.mux_video", "task.translate", "task.tts", "task.tts_compensation",
    ]  # fmt: skip
    assert (settings.exchange_name, settings.prefetch) == ("task_exchange", 1)
