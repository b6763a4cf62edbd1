"""The process of `hornbook serve`: starts, answers requests, and on Ctrl-C or SIGTERM finishes those that run."""

import contextlib
import dataclasses
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from hornbook.lifecycle.stopping import stop_signals
from hornbook.models.quantized import WeightFormat
from hornbook.serve.api import ServeSettings, build_app
from hornbook.serve.models import open_models

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
BACKLOG = 2048
# Seconds after which idle connections are closed: later than clients close them (httpx and openai after 5), which would
# otherwise send a request on a connection that is just being closed.
KEEP_ALIVE = 75


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal stops the server after the running requests, the second one at once. Unlike uvicorn's own,
        the signal is not raised again afterwards, because stopping was requested."""
        before = {each: signal.signal(each, self.handle_exit) for each in stop_signals()}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    models: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServeSettings | None = None,
    device: str = "auto",
    weights: WeightFormat = "float",
    log: Callable[[str], None] = print,
) -> None:
    """Loads the models and answers requests until the process is stopped. Port 0 chooses a free one."""
    settings = settings or ServeSettings()
    if not is_loopback(host) and settings.api_key is None:
        raise ValueError(f"{host} can be reached by others: add api_key=, or leave out host=")
    if is_loopback(host) and settings.api_key is None:
        # Another page in the same browser must not reach the server under a name of its own.
        settings = dataclasses.replace(settings, hosts=tuple(dict.fromkeys((*LOOPBACK, host))))
    listening = _listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    app = build_app(open_models(models, device, weights), settings)
    for model in app.state.server.models.values():
        log(f"{model.name}: {', '.join(model.abilities)}")
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.timeout) + 1,
    )
    listening.listen(BACKLOG)  # from here on clients can connect
    log(f"serving on {address} (Ctrl-C stops)")
    _Uvicorn(config).run(sockets=[listening])
    log("stopped")


def _listen(host: str, port: int) -> socket.socket:
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"cannot listen on {host}:{port} ({reason}): choose another port") from None
    listening.set_inheritable(True)
    return listening
