"""Services on loopback that do real work, and fail as they are told to."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from stagepost import Permanent
from stagepost_dubbing.engines.interfaces import Recogniser, Translator, Voice
from stagepost_dubbing.sound import Sound, wav_bytes


class Asked(NamedTuple):
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """What a service says."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Fault = Callable[["Handler", Answer], None]


class Server(ThreadingHTTPServer):
    """Answers in threads; each request takes the next fault of the list, if there is one."""

    daemon_threads = True
    block_on_close = True

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.faults: deque[Fault] = deque()
        self.asked: list[Asked] = []
        self.ending = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients that hang up are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body))

    def do_GET(self) -> None:
        self.reply(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, b""))

    def reply(self, asked: Asked) -> None:
        self.server.asked.append(asked)
        fault = self.server.faults.popleft() if self.server.faults else send
        fault(self, self.server.answer(asked))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def send(handler: Handler, answer: Answer) -> None:
    """Send an answer as it should be."""
    begin(handler, answer)
    handler.wfile.write(answer.body)


def begin(handler: Handler, answer: Answer) -> None:
    handler.send_response(answer.status)
    for name, value in (
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        *answer.headers,
    ):
        handler.send_header(name, value)
    handler.end_headers()


def status(code: int, *headers: tuple[str, str], body: bytes = b"no") -> Fault:
    """Answer with a status; nothing is done."""
    return lambda handler, _: send(handler, Answer(code, "text/plain", body, headers))


def instead(content_type: str, body: bytes) -> Fault:
    """Answer something else, as if it were right."""
    return lambda handler, _: send(handler, Answer(200, content_type, body))


def hang(handler: Handler, _: Answer) -> None:
    """Say nothing until the test is over."""
    handler.server.ending.wait()


def drip(handler: Handler, answer: Answer) -> None:
    """Send a byte at a time, each soon enough to keep the connection alive."""
    begin(handler, answer)
    with contextlib.suppress(OSError):
        for at in range(len(answer.body)):
            handler.wfile.write(answer.body[at : at + 1])
            if handler.server.ending.wait(0.05):
                return


def drip_headers(handler: Handler, _: Answer) -> None:
    """Never come to the end of the headers."""
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not handler.server.ending.wait(0.05):
            handler.wfile.write(b"x")


def cut(handler: Handler, answer: Answer) -> None:
    """Hang up in the middle of the answer."""
    begin(handler, answer)
    handler.wfile.write(answer.body[: len(answer.body) // 2])


def hang_up(_handler: Handler, _: Answer) -> None:
    """Hang up without a word."""


@contextlib.contextmanager
def running(answer: Callable[[Asked], Answer]) -> Iterator[Server]:
    """Run a server until the block ends; nothing of it is left."""
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()


def answer_json(content: object) -> Answer:
    return Answer(200, "application/json", json.dumps(content).encode())


def translating(translator: Translator, *, source: str = "en", target: str = "pt") -> Callable[[Asked], Answer]:
    """Speak the chat protocol, and translate what the last message holds."""

    def answer(asked: Asked) -> Answer:
        assert asked.path == "/v4/chat/completions"
        texts = json.loads(json.loads(asked.body)["messages"][-1]["content"])
        translated = translator.translate([text["text"] for text in texts], source=source, target=target)
        return completion([{"id": text["id"], "text": new} for text, new in zip(texts, translated, strict=True)])

    return answer


def completion(content: object, *, finish_reason: str = "stop") -> Answer:
    """Wrap what a model wrote."""
    written = content if isinstance(content, str) else json.dumps(content)
    message = {"role": "assistant", "content": written}
    return answer_json({"id": "1", "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}]})


def speaking(voice: Voice) -> Callable[[Asked], Answer]:
    """Answer `/synthesize` with WAV."""

    def answer(asked: Asked) -> Answer:
        question = json.loads(asked.body)
        duration = question.get("target_duration_ms")
        try:
            speech = voice.speak(
                question["text"],
                language=question["language"],
                speaker=question["speaker_id"],
                seconds=None if duration is None else duration / 1000,
            )
        except Permanent as error:
            return Answer(422, "text/plain", str(error).encode())
        return Answer(200, "audio/wav", wav_bytes(Sound.from_pcm(speech.samples, speech.rate)))

    return answer


def recognising(recogniser: Recogniser) -> Callable[[Asked], Answer]:
    """Answer `/transcribe` with segments."""

    def answer(asked: Asked) -> Answer:
        with TemporaryDirectory() as directory:
            path = Path(directory) / "sent.wav"
            path.write_bytes(asked.body)
            heard = recogniser.recognise(
                path, language=asked.path.partition("language=")[2], while_running=lambda _: None
            )
        segments = [{"start_ms": said.start * 1000, "end_ms": said.end * 1000, "text": said.text} for said in heard]
        return answer_json({"segments": segments, "language": "en", "duration_ms": 1})

    return answer
