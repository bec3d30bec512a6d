"""Recognition, speech and translation behind HTTP: real engines serve, and fail as they are told to."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from stagepost import Permanent, Retryable, StagepostError
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines import http
from stagepost_dubbing.engines.choose import choose_recogniser, choose_translator, choose_voice
from stagepost_dubbing.engines.errors import Refused, TimedOut, Unavailable
from stagepost_dubbing.engines.interfaces import Recogniser, Speech, Voice
from stagepost_dubbing.sound import Sound, wav_bytes
from tests.apps.dubbing import servers
from tests.apps.dubbing.checks import word_error_rate
from tests.apps.dubbing.servers import Answer, Asked, Fault, Server, completion, instead, status
from tests.apps.dubbing.spoken import SENTENCES, talk

KEY = "sk-very-secret-key"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talk(SENTENCES[:2]).save(tmp_path_factory.mktemp("talk") / "talk.wav")


@pytest.fixture(scope="module")
def recognition() -> Iterator[Server]:
    with servers.running(servers.recognising(choose_recogniser("moonshine", {}))) as server:
        yield server


@pytest.fixture
def speech() -> Iterator[Server]:
    with servers.running(servers.speaking(choose_voice("espeak", {}))) as server:
        yield server


def recogniser_at(server: Server, timeout: str = "120") -> Recogniser:
    return choose_recogniser(
        "asr-service", {"ASR_SERVICE_URL": server.url, "ASR_SERVICE_TIMEOUT_SECONDS": timeout, "ASR_SERVICE_TOKEN": KEY}
    )


def voice_at(server: Server, timeout: str = "120") -> Voice:
    return choose_voice("tts-service", {"TTS_SERVICE_URL": f"{server.url}/", "TTS_SERVICE_TIMEOUT_SECONDS": timeout})


def speak(voice: Voice, text: str = "Bom dia.", *, seconds: float | None = None) -> Speech:
    return voice.speak(text, language="pt-BR", speaker="default", seconds=seconds)


def test_a_service_recognises_a_talk(recognition: Server, recording: Path) -> None:
    heard = recogniser_at(recognition).recognise(recording, language="en", while_running=lambda _: None)

    assert word_error_rate(" ".join(SENTENCES[:2]), " ".join(said.text for said in heard)) <= 0.10
    assert recognition.asked[-1].path == "/transcribe?language=en"
    assert recognition.asked[-1].body == recording.read_bytes()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"<html>502</html>", "transcript in JSON"),
        (b"[]", "transcript in JSON"),
        (b'{"segments":[{"start_ms":"x"}]}', "transcript in JSON"),
        (b'{"segments":[{"start_ms":5,"end_ms":2,"text":"a"}]}', "from 5.0 to 2.0 ms"),
    ],
)
def test_a_transcript_that_makes_no_sense_is_tried_again(recording: Path, answer: bytes, complaint: str) -> None:
    with (
        servers.running(lambda _: Answer(200, "application/json", answer)) as server,
        pytest.raises(Retryable, match=complaint),
    ):
        recogniser_at(server).recognise(recording, language="en", while_running=lambda _: None)


def test_a_transcript_is_put_in_order_and_its_empty_segments_left_out(recording: Path) -> None:
    segments = [(3000, 4000, " two "), (0, 500, "  "), (1000, 2500.5, "one\nand")]
    content = {"segments": [{"start_ms": start, "end_ms": end, "text": text} for start, end, text in segments]}
    with servers.running(lambda _: servers.answer_json(content)) as server:
        heard = recogniser_at(server).recognise(recording, language="zh", while_running=lambda _: None)

    assert [(said.start, said.end, said.text) for said in heard] == [(1.0, 2.5005, "one and"), (3.0, 4.0, "two")]


def test_a_recording_in_which_a_service_hears_nothing_is_a_permanent_error(recording: Path) -> None:
    with (
        servers.running(lambda _: servers.answer_json({"segments": []})) as server,
        pytest.raises(Permanent, match="found no speech"),
    ):
        recogniser_at(server).recognise(recording, language="en", while_running=lambda _: None)


def test_one_who_waits_for_recognition_may_stop(recording: Path) -> None:
    def stop(_: float) -> None:
        raise TimeoutError

    with servers.running(lambda _: Answer(200, "text/plain", b"")) as server:
        server.faults.append(servers.hang)
        with pytest.raises(TimeoutError):
            recogniser_at(server).recognise(recording, language="en", while_running=stop)


def test_a_service_speaks_within_the_time(speech: Server) -> None:
    text = "Hoje vemos como uma fila cumpre as suas promessas."
    usual = speak(voice_at(speech), text)
    quick = speak(voice_at(speech), text, seconds=usual.seconds * 0.8)

    assert quick.seconds <= usual.seconds * 0.8
    assert json.loads(speech.asked[-1].body) == {
        "text": text,
        "language": "pt-BR",
        "speaker_id": "default",
        "output_format": "wav",
        "target_duration_ms": round(usual.seconds * 800),
    }
    assert "target_duration_ms" not in json.loads(speech.asked[0].body)


def test_a_service_may_keep_the_sound_and_say_where(speech: Server) -> None:
    sound = wav_bytes(Sound.from_pcm(bytes(4000), 22_050))

    def answer(asked: Asked) -> Answer:
        if asked.path == "/kept/1.wav":
            return Answer(200, "audio/wav", sound)
        return servers.answer_json({"audio_url": "/kept/1.wav", "duration_ms": 90})

    with servers.running(answer) as server:
        assert speak(voice_at(server)).samples == bytes(4000)


@pytest.mark.parametrize("address", ["http://169.254.169.254/latest", "file:///etc/passwd", "//evil.example/x.wav"])
def test_sound_is_not_fetched_from_elsewhere(address: str) -> None:
    with (
        servers.running(lambda _: servers.answer_json({"audio_url": address})) as server,
        pytest.raises(Retryable, match="sound is only fetched below http"),
    ):
        speak(voice_at(server))


@pytest.mark.parametrize(
    ("fault", "error", "complaint"),
    [
        (status(429, ("Retry-After", "3")), Unavailable, "429"),
        (status(500), Retryable, "500"),
        (servers.hang, TimedOut, "within 1 s"),
        (servers.drip, TimedOut, "within 1 s"),
        (servers.cut, Retryable, "did not finish its reply: IncompleteRead"),
        (instead("audio/wav", b"RIFF garbage"), Retryable, "it is not a WAV file"),
        (instead("audio/wav", wav_bytes(Sound.from_pcm(bytes(4000), 22_050))[:2000]), Retryable, "it ends after"),
        (instead("audio/wav", wav_bytes(Sound.from_pcm(b"", 22_050))), Retryable, "no sound in it"),
        (instead("text/html", b"<html>"), Retryable, "expected audio/wav, but it is text/html"),
        (instead("audio/mpeg", b"ID3"), Retryable, "but it is audio/mpeg"),
        (instead("application/json", b'{"error": 1}'), Retryable, "without an `audio_url`"),
    ],
)
def test_speech_that_cannot_be_used_is_told_apart(
    speech: Server, fault: Fault, error: type[StagepostError], complaint: str
) -> None:
    speech.faults.append(fault)
    timeout = "1" if error is TimedOut else "60"

    with pytest.raises(error, match=complaint) as caught:
        speak(voice_at(speech, timeout=timeout), "Uma frase que é comprida o bastante para que demore.")

    assert type(caught.value) is error
    if error is Unavailable:
        assert isinstance(caught.value, Unavailable)
        assert caught.value.after == timedelta(seconds=3)


def test_what_a_service_cannot_speak_is_a_permanent_error(speech: Server) -> None:
    with pytest.raises(Permanent, match=r"422 .*no speaker 'pavarotti'"):
        voice_at(speech).speak("Bom dia.", language="pt", speaker="pavarotti", seconds=None)


def test_addresses_and_times_that_cannot_work_are_named() -> None:
    for environment, complaint in [
        ({}, "TTS_SERVICE_URL is not set"),
        ({"TTS_SERVICE_URL": "localhost:8000"}, "TTS_SERVICE_URL must be an address that begins with http"),
        ({"TTS_SERVICE_URL": "http://me:secret@host"}, "TTS_SERVICE_URL must not contain a password"),
        ({"TTS_SERVICE_URL": "http://host", "TTS_SERVICE_TIMEOUT_SECONDS": "nan"}, "must be a number from 0.1 to 3600"),
    ]:
        with pytest.raises(ConfigurationError, match=complaint) as caught:
            choose_voice("tts-service", environment)
        assert "secret" not in str(caught.value)


@pytest.fixture
def chat() -> Iterator[Server]:
    with servers.running(servers.translating(choose_translator("offline", {}).translator)) as server:
        yield server


def glm_at(server: Server, **changed: str) -> dict[str, str]:
    return {"GLM_BASE_URL": f"{server.url}/v4", "GLM_API_KEY": KEY, "GLM_TIMEOUT_SECONDS": "120", **changed}


TEXTS = ["Good morning.", "The children play in the garden.", "It costs 3.50 dollars."]


def expected() -> list[str]:
    return list(choose_translator("offline", {}).translate(TEXTS, source="en", target="pt"))


def test_a_batch_is_one_request(chat: Server) -> None:
    environment = glm_at(chat, GLM_MODEL="glm-9", GLM_TEMPERATURE="0.7")
    translations = choose_translator("glm", environment).translate(TEXTS, source="en", target="pt")

    assert translations == expected()
    [asked] = chat.asked
    question = json.loads(asked.body)
    assert (question["model"], question["temperature"], question["stream"]) == ("glm-9", 0.7, False)
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(question["messages"][1]["content"])[1] == {"id": 2, "text": TEXTS[1]}


def wrote(content: object, finish_reason: str = "stop") -> Fault:
    return lambda handler, _: servers.send(handler, completion(content, finish_reason=finish_reason))


@pytest.mark.parametrize(
    "fault",
    [
        status(500),
        status(400),
        servers.cut,
        instead("application/json", b'{"choices": []}'),
        instead("application/json", b'{"error": {"code": "1234"}}'),
        instead("text/html", b"<html>"),
        wrote("Here are your translations: 1. Bom dia."),
        wrote([{"id": 1, "text": "Bom dia."}]),
        wrote([{"id": 1, "text": "a"}, {"id": 3, "text": "b"}, {"id": 2, "text": "c"}]),
        wrote([{"id": 1, "text": "a"}, {"id": 2, "text": 2}, {"id": 3, "text": "c"}]),
        wrote(["a", "b", "c"]),
        wrote('[{"id": 1, "te', "length"),
        wrote([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": 3, "text": "c"}], "content_filter"),
    ],
)
def test_a_batch_that_fails_is_taken_text_by_text(chat: Server, fault: Fault) -> None:
    chat.faults.append(fault)

    assert choose_translator("glm", glm_at(chat)).translate(TEXTS, source="en", target="pt") == expected()
    assert len(chat.asked) == 1 + len(TEXTS)


class Phrasebook:
    """Translates what it has seen, in no time."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        assert (source, target) == ("en", "pt")
        return [self._known[text] for text in texts]


@pytest.fixture
def too_long(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """Hang, and let the time of the one who asked be over then; what does not hang has all the time it needs."""
    made: list[http._Deadline] = []

    class Noted(http._Deadline):
        def __init__(self, sock: socket.socket, seconds: float) -> None:
            super().__init__(sock, seconds)
            made.append(self)

    def hang(handler: servers.Handler, answer: Answer) -> None:
        made[-1]._pass()
        servers.hang(handler, answer)

    monkeypatch.setattr(http, "_Deadline", Noted)
    return hang


def test_a_batch_that_takes_too_long_is_taken_text_by_text(too_long: Fault) -> None:
    known = dict(zip(TEXTS, expected(), strict=True))
    with servers.running(servers.translating(Phrasebook(known))) as server:
        server.faults.append(too_long)

        translations = choose_translator("glm", glm_at(server)).translate(TEXTS, source="en", target="pt")

    assert translations == list(known.values())


def test_json_in_a_fence_is_understood(chat: Server) -> None:
    chat.faults.append(wrote('```json\n[{"id": 1, "text": "Bom dia."}]\n```'))
    assert choose_translator("glm", glm_at(chat)).translate(["Good morning."], source="en", target="pt") == ["Bom dia."]


def test_a_service_that_wants_fewer_calls_gets_no_more(chat: Server) -> None:
    chat.faults.append(status(429, ("Retry-After", "11")))

    outcomes = choose_translator("glm", glm_at(chat)).translate_each(TEXTS, source="en", target="pt")

    assert len(chat.asked) == 1
    for outcome in outcomes:
        assert isinstance(outcome, Unavailable)
        assert outcome.after == timedelta(seconds=11)


def test_what_was_translated_before_the_limit_is_kept(chat: Server) -> None:
    chat.faults += [status(500), servers.send, status(429, ("Retry-After", "11"))]

    first, *rest = choose_translator("glm", glm_at(chat)).translate_each(TEXTS, source="en", target="pt")

    assert first == expected()[0]
    assert all(isinstance(outcome, Unavailable) for outcome in rest)
    assert len(chat.asked) == 3


def test_a_text_is_tried_as_often_as_the_setting_says(chat: Server) -> None:
    chat.faults += [status(500)] + [status(500)] * 2 + [servers.send, status(500), servers.send]
    environment = glm_at(chat, TRANSLATE_ITEM_MAX_RETRIES="2")

    outcomes = choose_translator("glm", environment).translate_each(TEXTS, source="en", target="pt")

    assert isinstance(outcomes[0], Retryable)
    assert outcomes[1:] == expected()[1:]
    assert len(chat.asked) == 6


@pytest.mark.parametrize("code", [401, 404])
def test_a_key_or_address_that_is_refused_is_not_tried_again(chat: Server, code: int) -> None:
    chat.faults += [status(code)] * 20
    with pytest.raises(Refused):
        choose_translator("glm", glm_at(chat)).translate(TEXTS, source="en", target="pt")
    assert len(chat.asked) == 1


def test_a_service_that_hangs_is_not_waited_for_once_per_text(chat: Server, too_long: Fault) -> None:
    chat.faults += [too_long] * 20

    outcomes = choose_translator("glm", glm_at(chat)).translate_each(TEXTS, source="en", target="pt")

    assert all(isinstance(outcome, TimedOut) for outcome in outcomes)
    assert len(chat.asked) == 2


def test_a_text_that_the_model_refuses_does_not_keep_the_others(chat: Server) -> None:
    refused = wrote("[]", "sensitive")
    chat.faults += [refused, servers.send, refused]

    outcomes = choose_translator("glm", glm_at(chat)).translate_each(TEXTS, source="en", target="pt")

    assert [type(outcome) for outcome in outcomes] == [str, Permanent, str]


def test_the_key_may_be_in_a_file(chat: Server, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    environment = glm_at(chat, GLM_API_KEY_FILE=str(path), GLM_API_KEY="")

    choose_translator("glm", environment).translate(TEXTS, source="en", target="pt")

    assert chat.asked[0].headers["authorization"] == f"Bearer {KEY}"


def test_keys_that_cannot_be_used_are_refused_and_not_shown(tmp_path: Path) -> None:
    for environment, complaint in [
        ({}, "GLM_API_KEY is not set"),
        ({"GLM_API_KEY": KEY, "GLM_API_KEY_FILE": "/x"}, "both set"),
        ({"GLM_API_KEY_FILE": str(tmp_path)}, "GLM_API_KEY_FILE=.* cannot be read: IsADirectoryError"),
        ({"GLM_API_KEY": f"{KEY}\x07{KEY}"}, "characters that cannot be sent"),
        ({"GLM_API_KEY": KEY, "GLM_TEMPERATURE": "hot"}, "GLM_TEMPERATURE='hot' must be a number from 0 to 2"),
    ]:
        with pytest.raises(ConfigurationError, match=complaint) as caught:
            choose_translator("glm", environment)
        assert KEY not in str(caught.value)
