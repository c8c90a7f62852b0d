"""A Dask cluster whose workers have this very package: connect to it, and say in time where that fails."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dreamrsi
from dreamrsi.errors import UserError
from dreamrsi.files import sha256

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of a Dask cluster that has workers with this very package."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UserError(
            "a Dask cluster needs the extra: pip install 'dreamrsi-kit[distributed]', here and on the workers"
        ) from None
    _knock(address)
    client = _connect(address)
    try:
        yield client
    finally:
        with suppress(OSError):  # of a scheduler that answers no more; what there is to say was said
            client.close(timeout=CONNECT_SECONDS)


def _knock(address: str) -> None:
    """Say within seconds that no scheduler listens at an address; Dask's own answers come later, or never."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise UserError(f"{address}: give the scheduler's address as tcp://HOST:PORT")
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS) as knocking:
            if parts.scheme == "tcp" and not knocking.recv(1):  # over TLS the one who connects speaks first
                raise ConnectionError("it hung up")
    except TimeoutError:
        raise UserError(
            f"{address}: the scheduler cannot be reached (no answer); is it one, and not stopped?"
        ) from None
    except OSError as error:
        raise UserError(f"{address}: the scheduler cannot be reached ({error}); is it running there?") from None


def _connect(address: str) -> Client:
    """Connect and look at the workers, or end with an error: a thread does it, for Dask's own timeouts can hang."""
    answer: Future[Client] = Future()

    def connect() -> None:
        try:
            client = _ready(address)
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(client)
            if late.is_set():
                client.close()

    late = threading.Event()
    threading.Thread(target=connect, name="dreamrsi-connect", daemon=True).start()
    try:
        return answer.result(3 * CONNECT_SECONDS)
    except UserError:
        raise
    except (OSError, CancelledError) as error:  # lost on the way, or no answer in time
        late.set()
        raise _unreachable(address, error) from error


def _ready(address: str) -> Client:
    from distributed import Client

    try:
        asyncio.run(asyncio.wait_for(_greet(address), CONNECT_SECONDS))
    except Exception as error:  # whatever Dask makes of what another service says
        raise _unreachable(address, error) from error
    client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise UserError(f"{address}: the scheduler has no worker; start some with: dask worker {address}") from None
        _check_versions(address, client)
    except BaseException:
        with suppress(OSError):
            client.close(timeout=CONNECT_SECONDS)
        raise
    return client


async def _greet(address: str) -> None:
    """Exchange a word with a scheduler, before there is a client that would not end if it cannot begin."""
    from distributed import rpc

    async with rpc(address, timeout=CONNECT_SECONDS) as scheduler:
        if (await scheduler.identity())["type"] != "Scheduler":
            raise ConnectionError("it is none")


def _unreachable(address: str, error: BaseException) -> UserError:
    said = str(error) or "no answer in time"
    return UserError(f"{address}: the scheduler cannot be reached ({said}); is it one, and not stopped?")


def _check_versions(address: str, client: Client) -> None:
    """Other code may give other numbers, and nobody would see it."""
    try:
        found = set(client.run(_version).values())
    except (ImportError, AttributeError) as error:
        raise UserError(f"{address}: a worker cannot import this dreamrsi ({error}); install it there") from None
    if found != {_version()}:
        raise UserError(f"{address}: workers have dreamrsi {', '.join(sorted(found))}, this is {_version()}")


def _version() -> str:
    return f"{dreamrsi.__version__} ({package()[:12]})"


@cache
def package() -> str:
    """The hash of the code of this package, once a process.

    Of the modules alone: beside them lie files that Python writes while another worker starts.
    """
    folder = Path(__file__).resolve().parent
    modules = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.py"))
    return hashlib.sha256(repr([(name, sha256(path)) for name, path in modules]).encode()).hexdigest()


def checked(expected: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a worker, which may have joined after the others were looked at.

    ``expected`` is what :func:`package` gives to the caller.
    """
    if expected != package():
        raise UserError(
            f"a worker has dreamrsi {_version()}, which is not the code of the caller; install the same there"
        )
    return function(*arguments)
