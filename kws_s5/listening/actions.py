"""What happens when a word is heard: a command, a web address, a message to an MQTT broker.

    actions = Actions(commands=("yes=light on",), webhook="http://127.0.0.1:8123/api/webhook/kws")
    actions.handle(event)                    # returns at once
    actions.close()

Everything runs on one thread of its own, in order, so that listening never waits. A word that acts again within
``debounce`` seconds is passed over. What fails is told on stderr and never ends the listening.
Commands are started without a shell: {word}, {score}, {start} and {end} in their arguments are replaced, and KWS_WORD,
KWS_SCORE, KWS_START and KWS_END are in their environment.
"""

import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlparse

from kws_s5.audio.samples import shown
from kws_s5.errors import UserError
from kws_s5.listening.events import Event

WAITING = 64  # events that may wait while an action is slow
PATIENCE = 5.0  # seconds for a web server, and for what is left at the end
ALL = "*"


def plain(event: Event) -> dict[str, Any]:
    """An event as JSON values."""
    return {
        "word": event.label,
        "start": round(event.start, 3),
        "end": round(event.end, 3),
        "score": round(event.score, 4),
        "decided": round(event.time, 3),
    }


class Actions:
    """Runs what was asked for, event by event."""

    def __init__(
        self,
        *,
        commands: Sequence[str] = (),
        webhook: str = "",
        mqtt: str = "",
        debounce: float = 1.0,
        words: Sequence[str] = (),
    ) -> None:
        """Gets ready; connects to the broker. Raises UserError for what cannot work.

        Args:
            commands: "WORD=command arguments" each; WORD * stands for every word.
            webhook: http or https address that gets the event as JSON (POST).
            mqtt: mqtt://[user:password@]HOST[:PORT]/TOPIC (extra: mqtt).
            debounce: seconds in which the same word does not act again.
            words: those that can be heard, to refuse others.
        """
        self.debounce = debounce
        self._last: dict[str, float] = {}
        self._doers: list[Callable[[Event], None]] = []
        by_word = [_command(text, words) for text in commands]
        if by_word:
            self._doers.append(lambda event: _run(by_word, event))
        if webhook:
            _check_address(webhook)
            self._doers.append(lambda event: _post(webhook, event))
        self._broker = _Broker(mqtt) if mqtt else None
        if self._broker:
            self._doers.append(self._broker.publish)
        self._queue: queue.Queue[Event | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="kws-actions", daemon=True)
        if self._doers:
            self._thread.start()

    def handle(self, event: Event) -> None:
        """Acts on an event, soon. Never waits and never fails."""
        if not self._doers or event.time - self._last.get(event.label, -1e9) < self.debounce:
            return
        self._last[event.label] = event.time
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            _tell(f"{shown(event.label)} at {event.time:.1f} s: {WAITING} actions wait already; this one is left out")

    def close(self) -> None:
        """What waits is done, for up to some seconds."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(PATIENCE)
        if self._broker:
            self._broker.close()

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            for do in self._doers:
                try:
                    do(event)
                except Exception as error:  # noqa: BLE001 - whatever an action does, listening goes on
                    _tell(f"{shown(event.label)} at {event.time:.1f} s: {shown(error)}")


def _command(text: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """ "word=command arguments" -> the word and its arguments."""
    word, equals, command = text.partition("=")
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--on {text!r}: {error}") from error
    if not equals or not word or not arguments:
        raise UserError(f"--on {text!r}: give WORD=command arguments, for example --on 'yes=notify-send yes'")
    if words and word not in (*words, ALL):
        raise UserError(f"--on {text!r}: this model listens for {', '.join(words)} (or * for all of them)")
    return word, arguments


def _run(by_word: Sequence[tuple[str, list[str]]], event: Event) -> None:
    values = {name: str(value) for name, value in plain(event).items()}
    environment = os.environ | {f"KWS_{name.upper()}": value for name, value in values.items()}
    for word, arguments in by_word:
        if word in (event.label, ALL):
            filled = [_filled(argument, values) for argument in arguments]
            process = subprocess.Popen(filled, env=environment, stdin=subprocess.DEVNULL)
            threading.Thread(target=_watch, args=(process, filled[0]), daemon=True).start()


def _filled(argument: str, values: dict[str, str]) -> str:
    for name in ("word", "score", "start", "end"):
        argument = argument.replace(f"{{{name}}}", values[name])
    return argument


def _watch(process: subprocess.Popen, name: str) -> None:
    status = process.wait()
    if status:
        _tell(f"{shown(name)} ended with status {status}")


def _check_address(address: str) -> None:
    parts = urlparse(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--webhook {address!r}: give an address that begins with http:// or https://")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The user named one address; a server must not choose another."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def _post(address: str, event: Event) -> None:
    body = json.dumps(plain(event)).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE) as answer:
        answer.read(1 << 16)


class _Broker:
    """An MQTT broker; paho reconnects by itself."""

    def __init__(self, address: str) -> None:
        try:
            from paho.mqtt import client as paho
        except ModuleNotFoundError as error:
            raise UserError("--mqtt needs paho-mqtt: pip install 'kws-s5[mqtt]'") from error
        try:
            parts = urlparse(address)
            port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        except ValueError as error:
            raise UserError(f"--mqtt {address!r}: {error}") from error
        self.topic = parts.path.lstrip("/")
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or not self.topic or set(self.topic) & set("+#"):
            raise UserError(f"--mqtt {address!r}: give mqtt://HOST[:PORT]/TOPIC, a topic without + and #")
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        if parts.username:
            self._client.username_pw_set(parts.username, parts.password)
        if parts.scheme == "mqtts":
            self._client.tls_set()
        try:
            self._client.connect(parts.hostname, port)
        except OSError as error:
            raise UserError(f"--mqtt: no broker at {parts.hostname}:{port} ({error})") from error
        self._client.loop_start()

    def publish(self, event: Event) -> None:
        """The event as JSON; raises where the broker does not take it in time."""
        self._client.publish(self.topic, json.dumps(plain(event)), qos=1).wait_for_publish(PATIENCE)
        if not self._client.is_connected():
            raise ConnectionError("the MQTT broker is away; the message is sent when it is back")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def _tell(text: str) -> None:
    print(f"action: {text}", file=sys.stderr, flush=True)
